#include "lockstep/science/experiment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/science/prepared_fields.h"
#include "lockstep/science/spectrum.h"

namespace lockstep::science {
namespace {

using ::testing::HasSubstr;

// Predicts a part of the features.
class Echo : public Estimator {
 public:
  std::string name() const override { return "Echo"; }
  torch::Tensor predict(const data::Loader& loader) override {
    return loader.dataset()->gather(loader.order(), {})["features"].flatten(1) * 0.9;
  }
  void save(const std::filesystem::path&) const override {}
  void load(const std::filesystem::path&) override {}
  HParams parameters() const override { return {{"lr", 0.5}}; }
  const std::map<std::int64_t, EpochMetrics>& history() const override { return history_; }

 protected:
  void fit(const data::Loaders& loaders, const OnEpoch& on_epoch) override {
    for (std::int64_t epoch = 1; epoch <= 3; ++epoch) {
      for (const auto& [loader, unused] : loaders)
        history_[epoch][loader]["loss"] = 1.0 / static_cast<double>(epoch);
      if (on_epoch) on_epoch(epoch, history_[epoch]);
    }
  }

 private:
  std::map<std::int64_t, EpochMetrics> history_;
};

class Experiment : public ::testing::Test {
 protected:
  Experiment() {
    const torch::Tensor x =
        synthetic_turbulence({.shape = {8, 8, 8}, .components = 6}).reshape({3, 2, 8, 8, 8});
    loader_ =
        data::Loader(std::make_shared<data::TensorDataset>(x, x.flatten(1)), {.batch_size = 2});
  }
  std::string file(const std::string& name) const { return read_file(folder_ / name); }

  TemporaryDirectory folder_;
  data::Loader loader_ = {
      std::make_shared<data::TensorDataset>(torch::ones({1, 1}), torch::ones({1, 1})), {}};
  Echo estimator_;
};

TEST_F(Experiment, TrainingIsTracked) {
  run(TrainExperiment{.estimator = estimator_,
                      .loaders = {{"train", loader_}, {"valid", loader_}},
                      .trackers = {std::make_shared<FileTracker>(folder_.path())}});
  EXPECT_THAT(file("metrics.csv"), HasSubstr("train - loss,3,0.333"));
  EXPECT_THAT(file("metrics.csv"), HasSubstr("train - runtime,0,"));
  EXPECT_THAT(file("params.json"), HasSubstr("\"model - lr\": 0.5"));
  EXPECT_EQ(file("loss.csv").substr(0, 24), "epoch,train,valid\n1,1,1\n");
  EXPECT_THAT(file("loss.svg"), HasSubstr("</svg>"));
}

TEST_F(Experiment, AnEvaluationComparesAndReports) {
  estimator_.train({{"train", loader_}});
  const Evaluation result =
      run(EvaluateExperiment{.estimator = estimator_,
                             .loader = loader_,
                             .cube = {8, 8, 8},
                             .title = "Echoes",
                             .facts = {{"margin", "12 %"}},
                             .trackers = {std::make_shared<FileTracker>(folder_.path())}});
  EXPECT_EQ(result.predict.sizes(), result.target.sizes());
  EXPECT_NEAR(result.mse, 0.01 * result.target.square().mean().item<double>(), 1e-5);
  EXPECT_GT(result.mse_of_mean, result.mse);
  EXPECT_GT(result.ks, 0);
  EXPECT_LT(result.ks, 0.2);
  EXPECT_THAT(file("metrics.csv"), HasSubstr("eval - KS Stat"));
  for (const char* const name : {"pdf_cdf", "slices", "spectrum"}) {
    EXPECT_THAT(file(std::string(name) + ".svg"), HasSubstr("</svg>"));
    EXPECT_GT(file(std::string(name) + ".csv").size(), 50u);
  }
  const std::string report = file("report.html");
  for (const char* const part : {"<h1>Echoes</h1>", "12 %", "Distribution of values",
                                 "Power spectrum", "A slice", "Training"})
    EXPECT_THAT(report, HasSubstr(part));
}

// A tracker that fails in its second call.
class Broken : public Tracker {
 public:
  std::string name() const override { return "broken"; }
  void log_parameters(const HParams&) override { ++calls; }
  void log_metrics(const std::vector<TrackedMetric>&) override {
    ++calls;
    throw Error("out of disk");
  }
  void log_artifact(const std::string&, const std::string&) override { ++calls; }
  void finish() override {}
  int calls = 0;
};

TEST_F(Experiment, ATrackerThatFailsCostsNothingElse) {
  const auto broken = std::make_shared<Broken>();
  run(TrainExperiment{.estimator = estimator_,
                      .loaders = {{"train", loader_}},
                      .trackers = {broken, std::make_shared<FileTracker>(folder_.path())}});
  EXPECT_EQ(broken->calls, 2) << "it is not called again after it failed";
  EXPECT_THAT(file("metrics.csv"), HasSubstr("train - loss,3,0.333"));
  EXPECT_THAT(file("loss.svg"), HasSubstr("</svg>"));
}

TEST_F(Experiment, AWholeFieldIsPutTogether) {
  const torch::Tensor field = synthetic_turbulence({.shape = {8, 8, 8}, .components = 1});
  const torch::Tensor cubes = split_cubes(field, {4, 4, 4});
  const data::Loader loader(std::make_shared<data::TensorDataset>(cubes, cubes.flatten(1)),
                            {.batch_size = 2});
  run(EvaluateExperiment{.estimator = estimator_,
                         .loader = loader,
                         .cube = {4, 4, 4},
                         .field = {8, 8, 8},
                         .trackers = {std::make_shared<FileTracker>(folder_.path())}});
  // The largest waves have the energy of the field, and the prediction has 0.81 of it.
  const double energy = power_spectrum(field).energy[0];
  const std::string csv = file("spectrum.csv");
  double target = 0, predicted = 0;
  ASSERT_EQ(
      std::sscanf(csv.c_str(), "k,target,predicted,kolmogorov\n1,%lf,%lf", &target, &predicted), 2);
  EXPECT_NEAR(target, energy, 1e-6);
  EXPECT_NEAR(predicted, 0.81 * energy, 1e-6);
  EXPECT_THAT(file("slices.csv"), HasSubstr("\n7,7,"));
  EXPECT_THROW(
      run(EvaluateExperiment{
          .estimator = estimator_, .loader = loader, .cube = {4, 4, 4}, .field = {12, 8, 8}}),
      DataError);
}

// Two snapshots: the spectra are means over both, and the report has the sides of the box.
TEST_F(Experiment, SeveralFieldsAreEvaluatedToo) {
  const torch::Tensor one = synthetic_turbulence({.shape = {4, 4, 8}, .components = 1});
  const torch::Tensor cubes =
      torch::cat({split_cubes(one, {4, 4, 4}), split_cubes(2 * one, {4, 4, 4})});
  const data::Loader loader(std::make_shared<data::TensorDataset>(cubes, cubes.flatten(1)),
                            {.batch_size = 2});
  run(EvaluateExperiment{.estimator = estimator_,
                         .loader = loader,
                         .cube = {4, 4, 4},
                         .field = {4, 4, 8},
                         .trackers = {std::make_shared<FileTracker>(folder_.path())}});
  double k = 0, target = 0;
  ASSERT_EQ(std::sscanf(file("spectrum.csv").c_str(), "k,target,predicted,kolmogorov\n%lf,%lf", &k,
                        &target),
            2);
  EXPECT_NEAR(target, 2.5 * power_spectrum(one).energy[0], 1e-5);
  const std::string report = file("report.html");
  EXPECT_THAT(report, HasSubstr("4 x 4 x 8 points, sides 1 : 1 : 2 (equal spacing)"));
  EXPECT_THAT(report, HasSubstr("the mean of 2 whole fields"));
}

TEST_F(Experiment, WhatCannotBeEvaluatedIsSaidBeforeTraining) {
  const torch::Tensor cubes = torch::rand({7, 1, 4, 4, 4});
  const data::DatasetPtr dataset = std::make_shared<data::TensorDataset>(cubes, cubes.flatten(1));
  EvaluateExperiment evaluation{.estimator = estimator_,
                                .loader = {dataset, {.batch_size = 2}},
                                .cube = {4, 4, 4},
                                .field = {8, 8, 8}};
  const auto error = [&] {
    try {
      check(evaluation);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(error(), HasSubstr("7 cubes of [4, 4, 4] do not fill fields of [8, 8, 8], which have "
                                 "8 each"));
  evaluation.field = {4, 4, 28};
  EXPECT_EQ(error(), "");
  evaluation.box = {1, 1};
  EXPECT_THAT(error(), HasSubstr("box: expected 3 lengths"));
  evaluation.box = {};
  evaluation.loader = {dataset, {.batch_size = 2, .shuffle = true}};
  EXPECT_THAT(error(), HasSubstr("without shuffle"));
  evaluation.loader = loader_;
  evaluation.cube = {};
  EXPECT_THAT(error(), HasSubstr("set cube"));
}

TEST_F(Experiment, WhatIsNotFiniteIsCounted) {
  torch::Tensor x = torch::rand({4, 1, 4, 4, 4});
  x[1][0][2][2][2] = NAN;
  const data::Loader loader(std::make_shared<data::TensorDataset>(x, torch::rand({4, 64})),
                            {.batch_size = 2});
  run(EvaluateExperiment{.estimator = estimator_,
                         .loader = loader,
                         .cube = {4, 4, 4},
                         .trackers = {std::make_shared<FileTracker>(folder_.path())}});
  EXPECT_THAT(file("report.html"), HasSubstr("predictions that are not finite"));
  EXPECT_THAT(file("report.html"), HasSubstr("1 of 256"));
  EXPECT_THAT(file("metrics.csv"), HasSubstr("eval - MSE Loss,0,nan"));
}

// The estimator does not scale back, so the evaluation does.
TEST_F(Experiment, ScaledSamplesAreReportedInTheUnitsOfTheFile) {
  const data::ChannelScaling one{
      .kind = data::Normalization::kStandard, .shift = {50}, .scale = {10}};
  const torch::Tensor x = 50 + 10 * torch::rand({4, 1, 4, 4, 4});
  const auto raw = std::make_shared<data::TensorDataset>(x, x);
  const data::Loader loader(
      prepared(raw, {.scaling = {.features = one, .targets = one}, .flat = true}),
      {.batch_size = 2});
  const Evaluation result = run(EvaluateExperiment{
      .estimator = estimator_, .loader = loader, .cube = {4, 4, 4}, .box = {1, 2, 4}});
  EXPECT_TRUE(torch::allclose(result.target, x.flatten(1)));
  // It predicts 0.9 of the scaled values.
  EXPECT_TRUE(torch::allclose(result.predict, 50 + 0.9 * (x.flatten(1) - 50), 1e-4));
}

TEST_F(Experiment, WithoutCubesThereAreNoSlices) {
  run(EvaluateExperiment{.estimator = estimator_,
                         .loader = loader_,
                         .trackers = {std::make_shared<FileTracker>(folder_.path())}});
  EXPECT_TRUE(std::filesystem::exists(folder_ / "pdf_cdf.svg"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "slices.svg"));
}

}  // namespace
}  // namespace lockstep::science

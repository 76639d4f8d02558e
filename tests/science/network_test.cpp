#include "lockstep/science/network.h"

#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/science/field_statistics.h"
#include "lockstep/science/prepared_fields.h"
#include "tests/science/support.h"

namespace lockstep::science {
namespace {

using ::testing::HasSubstr;
namespace nn = torch::nn;

class Straight : public Network {
 public:
  using Network::Network;
  std::string name() const override { return "Straight"; }

 protected:
  Model make_model(const FieldShape& shape) const override {
    nn::Sequential model;
    model->push_back(nn::Flatten());
    model->push_back(nn::Linear(shape.channels * shape.size[0], shape.outputs));
    return model;
  }
  Criterion criterion() const override { return nn::MSELoss(); }
};

data::DatasetPtr samples(std::int64_t count) {
  torch::manual_seed(3);
  const torch::Tensor x = torch::randn({count, 2, 4});
  return std::make_shared<data::TensorDataset>(
      x, x.flatten(1).matmul(torch::arange(8.0).reshape({8, 1})));
}

data::Loaders loaders() {
  const auto data = samples(64);
  return {{"train", {data, {.batch_size = 8, .shuffle = true}}},
          {"valid", {data, {.batch_size = 16}}}};
}

NetworkConfig config() {
  return {.n_epochs = 40, .logdir = std::nullopt, .lr = 0.1};
}

TEST(Network, TheTrainedModelComesBackFromWorkers) {
  NetworkConfig ddp = config();
  ddp.ddp = true;
  ddp.workers = 2;
  Straight estimator(ddp);
  estimator.train(loaders());
  const data::Loader valid = loaders().at("valid");
  const torch::Tensor predicted = estimator.predict(valid);
  EXPECT_EQ(predicted.sizes(), torch::IntArrayRef({64, 1}));
  const double error = (predicted - valid.dataset()->gather(valid.order(), {})["targets"])
                           .square()
                           .mean()
                           .item<double>();
  EXPECT_NEAR(error, estimator.history().rbegin()->second.at("valid").at("loss"),
              1e-3 * error + 1e-6);
  EXPECT_LT(error, 30) << "the variance is 140";
}

TEST(Network, TheSameBitsOnOneAndTwoWorkers) {
  std::vector<std::string> hashes;
  for (const int workers : {1, 2}) {
    NetworkConfig ddp = config();
    ddp.ddp = true;
    ddp.workers = workers;
    ddp.shards = 2;
    Straight estimator(ddp);
    estimator.train(loaders());
    hashes.push_back(estimator.weights_hash());
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

TEST(Network, StopsEarlyOnTheFirstLoadersLoss) {
  NetworkConfig patient = config();
  patient.patience = 2;
  patient.min_delta = 1e9;  // no epoch improves by this much
  Straight estimator(patient);
  estimator.train(loaders());
  EXPECT_EQ(estimator.history().size(), 3u);
}

TEST(Network, SavesAndLoads) {
  const TemporaryDirectory folder;
  Straight estimator(config());
  EXPECT_THROW(estimator.save(folder.path()), Error);
  EXPECT_THROW(estimator.predict(loaders().at("valid")), Error);
  EXPECT_EQ(estimator.describe(), "");
  estimator.train(loaders());
  EXPECT_THAT(estimator.describe(), HasSubstr("1.weight: Float [1, 8]"));
  EXPECT_THAT(estimator.describe(), HasSubstr("9 weights"));
  estimator.save(folder / "model");
  Straight other(config());
  other.load(folder / "model");
  const data::Loader valid = loaders().at("valid");
  EXPECT_TRUE(other.predict(valid).equal(estimator.predict(valid)));
  const StateDict saved = checkpoint::load(folder / "model/model.pt");
  EXPECT_EQ(saved.get<std::int64_t>("epoch"), 40);
  EXPECT_TRUE(saved.get<StateDict>("optimizer_state_dict")
                  .get<StateDict>("state")
                  .get<StateDict>("0")
                  .contains("exp_avg"));
  const auto json = nlohmann::json::parse(read_file(folder / "model/params.json"));
  EXPECT_EQ(json["parameters"]["n_epochs"], 40);
  EXPECT_EQ(json["shape"]["channels"], 2);
}

TEST(Network, ALoadedModelIsTrainedOn) {
  const TemporaryDirectory folder;
  NetworkConfig first = config();
  first.n_epochs = 10;
  Straight estimator(first);
  estimator.train(loaders());
  estimator.save(folder.path());
  Straight other(first);
  other.load(folder.path());
  other.train(loaders());
  EXPECT_LT(other.history().begin()->second.at("valid").at("loss"),
            estimator.history().rbegin()->second.at("valid").at("loss"));
  const auto other_data =
      std::make_shared<data::TensorDataset>(torch::ones({8, 1, 4}), torch::ones({8, 1}));
  other.load(folder.path());
  EXPECT_THROW(other.train({{"train", {other_data, {.batch_size = 8}}}}), DataError);
}

TEST(Network, TellsOfEachEpochAsItEnds) {
  Straight estimator(config());
  std::vector<std::int64_t> epochs;
  estimator.train(loaders(), [&](std::int64_t epoch, const EpochMetrics& metrics) {
    epochs.push_back(epoch);
    EXPECT_TRUE(metrics.at("valid").contains("loss"));
    EXPECT_TRUE(estimator.history().empty()) << "training has not ended yet";
  });
  EXPECT_EQ(epochs.size(), 40u);
}

// Samples [2, 4] far from zero, scaled.
data::DatasetPtr scaled_samples(const std::optional<data::Scaling>& scaling = {}) {
  torch::manual_seed(3);
  const torch::Tensor x = 500 + 20 * torch::randn({64, 2, 4});
  const auto raw = std::make_shared<data::TensorDataset>(x, 3 * x.narrow(1, 0, 1));
  std::vector<std::int64_t> all(64);
  std::iota(all.begin(), all.end(), 0);
  const auto measured = [&](const char* key) {
    return measure({.fields = *raw, .samples = all, .key = key}, data::Normalization::kStandard);
  };
  return prepared(raw, {.scaling = scaling.value_or(data::Scaling{.features = measured("features"),
                                                                  .targets = measured("targets")}),
                        .flat = true});
}

TEST(Network, PredictsInTheUnitsOfTheFile) {
  const TemporaryDirectory folder;
  Straight estimator(config());
  const data::Loader loader(scaled_samples(), {.batch_size = 16});
  estimator.train({{"train", loader}});
  const data::Scaling scaling = estimator.scaling();
  ASSERT_EQ(scaling.targets.shift.size(), 1u);
  const torch::Tensor predicted = estimator.predict(loader);
  EXPECT_NEAR(predicted.mean().item<double>(), 1500, 30) << "and not 0";
  EXPECT_TRUE(std::holds_alternative<std::string>(estimator.parameters().at("scaling")));
  estimator.save(folder.path());
  Straight other(config());
  other.load(folder.path());
  EXPECT_EQ(other.scaling(), scaling) << "to the last digit";
  EXPECT_TRUE(other.predict(loader).equal(predicted));
  data::Scaling changed = scaling;
  changed.features.shift[0] += 1;
  const data::Loader wrong(scaled_samples(changed), {.batch_size = 16});
  EXPECT_THROW(other.predict(wrong), DataError);
  EXPECT_THROW(other.train({{"train", wrong}}), DataError);
  EXPECT_THROW(other.train({{"train", loader}, {"valid", wrong}}), DataError);
}

// Here targets are fields, not rows.
TEST(Network, TargetsMayHaveAnyShape) {
  const torch::Tensor x = torch::randn({32, 2, 4});
  const auto data = std::make_shared<data::TensorDataset>(x, x);
  Straight estimator(config());
  estimator.train({{"train", {data, {.batch_size = 8}}}});
  EXPECT_LT(estimator.history().rbegin()->second.at("train").at("loss"), 0.1);
}

TEST(Network, ALossThatIsNoNumberEndsIt) {
  const auto data =
      std::make_shared<data::TensorDataset>(torch::full({8, 2, 4}, NAN), torch::ones({8, 1}));
  Straight estimator(config());
  EXPECT_THROW(estimator.train({{"train", {data, {.batch_size = 8}}}}), Error);
}

TEST(Network, OnlyRankZeroSaves) {
  const TemporaryDirectory folder;
  Straight estimator(config());
  estimator.train(loaders());
  const test::Rank rank(1, 2);
  estimator.save(folder / "model");
  EXPECT_FALSE(std::filesystem::exists(folder / "model"));
}

TEST(Network, ParametersSayWhatResultsDependOn) {
  NetworkConfig ddp = config();
  ddp.ddp = true;
  ddp.workers = 2;
  ddp.shards = 4;
  const HParams parameters = Straight(ddp).parameters();
  EXPECT_EQ(std::get<std::int64_t>(parameters.at("workers")), 2);
  EXPECT_EQ(std::get<std::int64_t>(parameters.at("shards")), 4);
  EXPECT_EQ(std::get<std::string>(parameters.at("device")), "cpu");
}

TEST(Network, AnExistingLogFolderIsNotDeleted) {
  const TemporaryDirectory folder;
  write_file_atomically(folder / "precious.txt", "mine");
  NetworkConfig logged = config();
  logged.n_epochs = 1;
  logged.logdir = folder.path();
  Straight(logged).train(loaders());
  EXPECT_EQ(read_file(folder / "precious.txt"), "mine");
  EXPECT_TRUE(std::filesystem::exists(folder / "checkpoints/best.pth"));
}

TEST(Network, RefusesOptionsWithoutMeaning) {
  EXPECT_THROW(Straight({.n_epochs = 0}), ConfigError);
  EXPECT_THROW(Straight({.workers = 2}), ConfigError);
  EXPECT_THROW(Straight({.max_restarts = 2}), ConfigError);
  EXPECT_THROW(Straight(config()).train({}), ConfigError);
}

}  // namespace
}  // namespace lockstep::science

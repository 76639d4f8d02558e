#include "lockstep/runner/supervised.h"

#include <gtest/gtest.h>

#include "lockstep/train/plan.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

TEST(SupervisedRunner, UsesTheKeysItWasTold) {
  const auto dataset = data::tensor_dataset(
      {{"x", torch::randn({6, 4})}, {"y", torch::randint(0, 3, {6}, torch::kInt64)}});
  SupervisedRunner runner(
      {.input_key = "x", .output_key = "scores", .target_key = "y", .loss_key = "nll"});
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->batch_end = [](State& s) {
    EXPECT_TRUE(s.batch.contains("scores"));
    EXPECT_TRUE(s.batch.contains("nll"));
  };
  TrainOptions options = toy::options();
  options.loaders = {{"train", {dataset, {.batch_size = 3}}},
                     {"valid", {dataset, {.batch_size = 3}}}};
  options.callbacks = {hooks};
  const auto result = runner.train(options);
  EXPECT_EQ(result.best_metric, result.best_metrics.at("valid").at("nll")) << "the default metric";
  EXPECT_EQ(
      runner.predict_loader({.loader = {dataset, {.batch_size = 6}}}).concat("scores").size(0), 6);
}

// The same training without Lockstep: the same order, the same seeds, LibTorch's own optimizer.
TEST(SupervisedRunner, FollowsALoopWrittenByHand) {
  namespace nn = torch::nn;
  const auto make = [] {
    manual_seed(3);
    return nn::Sequential(nn::Linear(4, 8), nn::Tanh(), nn::Linear(8, 3));
  };
  const auto dataset = toy::points(50);
  TrainOptions options = toy::options();
  options.model = make();
  options.loaders = {{"train", {dataset, {.batch_size = 8, .shuffle = true}}}};
  options.valid_loader.reset();
  options.optimizer = optim::Adam{.lr = 0.01};
  toy::train(options);

  auto model = make();
  torch::optim::Adam adam(model->parameters(), torch::optim::AdamOptions(0.01));
  const data::Loader loader(dataset, {.batch_size = 8, .shuffle = true});
  for (std::int64_t epoch = 1; epoch <= 3; ++epoch) {
    for (Batch& batch : loader.stream({.seed = 42, .epoch = epoch})) {
      const auto loss =
          torch::cross_entropy_loss(model->forward(batch["features"]), batch["targets"]);
      adam.zero_grad();
      loss.backward();
      adam.step();
    }
  }
  const auto ours = options.model.parameters();
  const auto theirs = model->parameters();
  for (std::size_t i = 0; i < ours.size(); ++i) {
    EXPECT_TRUE(torch::allclose(ours[i].second, theirs[i], 1e-5, 1e-6)) << ours[i].first;
  }
}

// Points and a scale in; the class and the sum of the coordinates out.
struct TwoHeadsImpl : torch::nn::Module {
  TwoHeadsImpl()
      : classes(register_module("classes", torch::nn::Linear(4, 3))),
        sum(register_module("sum", torch::nn::Linear(4, 1))) {}
  std::tuple<torch::Tensor, torch::Tensor> forward(const torch::Tensor& x, const torch::Tensor& s) {
    return {classes(x * s), sum(x * s)};
  }
  torch::nn::Linear classes, sum;
};

TrainOptions two_heads() {
  manual_seed(5);
  const auto x = torch::randn({40, 4});
  const auto data = data::tensor_dataset({{"x", x},
                                          {"scale", torch::ones({40, 1})},
                                          {"label", x.narrow(1, 0, 3).argmax(1)},
                                          {"total", x.sum(1, /*keepdim=*/true)}});
  TrainOptions options = toy::options();
  options.model = std::make_shared<TwoHeadsImpl>();
  options.criterion = {};
  options.criterions = {{"ce", torch::nn::CrossEntropyLoss()}, {"l1", torch::nn::L1Loss()}};
  options.loaders = {{"train", {data, {.batch_size = 5, .shuffle = true}}},
                     {"valid", {data, {.batch_size = 20}}}};
  options.num_epochs = 8;
  options.optimizer = optim::Adam{.lr = 0.05};
  return options;
}

SupervisedKeys two_heads_keys() {
  return {.input_keys = {"x", "scale"},
          .output_keys = {"class", "sum"},
          .losses = {{.criterion = "ce", .output = "class", .target = "label"},
                     {.criterion = "l1", .output = "sum", .target = "total", .weight = 0.5}}};
}

TEST(SupervisedRunner, TrainsSeveralInputsOutputsAndLosses) {
  const TrainOptions options = two_heads();
  SupervisedRunner runner(two_heads_keys());
  const auto result = runner.train(options);
  const auto& first = result.history.at(1).at("train");
  const auto& last = result.last_metrics.at("train");
  EXPECT_LT(last.at("loss/class"), first.at("loss/class"));
  EXPECT_LT(last.at("loss/sum"), first.at("loss/sum"));
  EXPECT_NEAR(last.at("loss"), last.at("loss/class") + 0.5 * last.at("loss/sum"), 1e-5);
  const data::Loader& valid = options.loaders.at("valid");
  EXPECT_EQ(runner.predict_loader({.loader = valid}).concat("sum").size(0), 40);
  EXPECT_EQ(runner.predict_loader({.loader = valid}).next()->keys().size(), 2U);
}

TEST(SupervisedRunner, SeveralLossesAreTheSameForAnyNumberOfWorkers) {
  std::vector<std::string> hashes;
  for (const int workers : {1, 2}) {
    TrainOptions options = two_heads();
    options.num_epochs = 2;
    options.ddp = true;
    options.workers = workers;
    options.shards = 2;
    hashes.push_back(SupervisedRunner(two_heads_keys()).train(options).weights_hash);
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

TEST(SupervisedRunner, MetricsOfItsLossesAreKnown) {
  TrainOptions options = two_heads();
  options.valid_metric = "loss/sume";
  options.minimize_valid_metric = true;
  EXPECT_NE(toy::error_of([&] {
              SupervisedRunner(two_heads_keys()).train(options);
            }).find("did you mean 'loss/sum'"),
            std::string::npos);
}

// Its handlers may add any metric.
TEST(SupervisedRunner, MetricsOfADerivedClassAreNotKnown) {
  class Counting : public SupervisedRunner {
   protected:
    void on_forward(State& state) override { state.batch_metrics["mine"] = 1; }
  };
  TrainOptions options = toy::options();
  options.valid_metric = "mine";
  options.minimize_valid_metric = false;
  EXPECT_EQ(Counting().train(options).best_metric, 1);
  EXPECT_NE(toy::error_of([&] { SupervisedRunner().train(options); }), "");
}

TEST(SupervisedRunner, TheRanksCompareItsTypeAndItsKeys) {
  const SupervisedKeys keys{.losses = {{.weight = 0.5}}};
  const Plan plan = SupervisedRunner(keys).plan(toy::options());
  EXPECT_EQ(plan.runner_type, "lockstep::SupervisedRunner");
  EXPECT_EQ(plan.runner_options, describe(keys));
  class Own : public SupervisedRunner {
   public:
    std::string agreed_options() const override { return "depth=3"; }
  };
  const Plan other = Own().plan(toy::options());
  EXPECT_NE(other.runner_type, plan.runner_type);
  EXPECT_EQ(other.runner_options, "depth=3");
}

TEST(SupervisedRunner, TheTargetMayBeTheInput) {
  TrainOptions options = toy::options();
  options.model = torch::nn::Sequential(torch::nn::Linear(4, 3), torch::nn::Linear(3, 4));
  options.criterion = torch::nn::MSELoss();
  options.num_epochs = 10;
  const auto result = SupervisedRunner(SupervisedKeys{.target_key = "features"}).train(options);
  EXPECT_LT(result.last_metrics.at("valid").at("loss"),
            result.history.at(1).at("valid").at("loss"));
}

TEST(SupervisedRunner, RefusesKeysThatContradictEachOther) {
  EXPECT_THROW(SupervisedRunner({.input_key = "x", .input_keys = {"a"}}), ConfigError);
}

}  // namespace
}  // namespace lockstep

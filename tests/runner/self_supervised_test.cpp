#include "lockstep/runner/self_supervised.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/loss/nt_xent_loss.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

// Returns an embedding and its projection.
struct EncoderImpl : torch::nn::Module {
  std::tuple<torch::Tensor, torch::Tensor> forward(const torch::Tensor& x) {
    const auto embedding = encoder(x).tanh();
    return {embedding, projector(embedding)};
  }
  torch::nn::Linear encoder = register_module("encoder", torch::nn::Linear(4, 6));
  torch::nn::Linear projector = register_module("projector", torch::nn::Linear(6, 3));
};

TrainOptions encoder_options() {
  manual_seed(5);
  TrainOptions options = toy::options();
  options.model = std::make_shared<EncoderImpl>();
  options.criterion = NTXentLoss();
  return options;
}

SelfSupervisedKeys with_noise() {
  return {.augment =
              data::Lambda([](const torch::Tensor& x) { return x + 0.1 * torch::randn_like(x); })};
}

TEST(SelfSupervisedRunner, TheCriterionGetsTheProjectionsOfTwoVariants) {
  TrainOptions options = encoder_options();
  std::vector<torch::Tensor> seen;
  options.criterion = [&](const torch::Tensor& left, const torch::Tensor& right) {
    seen = {left, right};
    return (left - right).square().mean();
  };
  auto hooks = std::make_shared<toy::Hooks>();
  int batches = 0;
  hooks->forward = [&](State& s) {
    ++batches;
    const auto near = [&](const char* key) {
      return (s.batch[key] - s.batch["features"]).abs().max().item<double>() < 1;
    };
    EXPECT_TRUE(near("augment_left"));
    EXPECT_TRUE(near("augment_right"));
    EXPECT_FALSE(s.batch["augment_left"].equal(s.batch["augment_right"]));
    for (std::size_t i = 0; i < 2; ++i) {
      const std::string side = i == 0 ? "_left" : "_right";
      const Outputs outputs = s.model.outputs(s.batch["augment" + side]);
      EXPECT_TRUE(s.batch["embedding" + side].equal(outputs[0]));
      EXPECT_TRUE(s.batch["projection" + side].equal(outputs[1]));
      EXPECT_TRUE(seen[i].equal(outputs[1]));
    }
  };
  options.callbacks = {hooks};
  SelfSupervisedRunner(with_noise()).train(options);
  EXPECT_GT(batches, 0);
}

TEST(SelfSupervisedRunner, Trains) {
  TrainOptions options = encoder_options();
  options.num_epochs = 10;
  const auto result = SelfSupervisedRunner(with_noise()).train(options);
  EXPECT_LT(result.last_metrics.at("valid").at("loss"),
            result.history.at(1).at("valid").at("loss"));
}

TEST(SelfSupervisedRunner, IsTheSameForAnyNumberOfWorkers) {
  std::vector<std::string> hashes;
  for (const int workers : {1, 2}) {
    TrainOptions options = encoder_options();
    options.ddp = true;
    options.workers = workers;
    options.shards = 2;
    hashes.push_back(SelfSupervisedRunner(with_noise()).train(options).weights_hash);
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

TEST(SelfSupervisedRunner, TakesTheVariantsOfTheDataSet) {
  const auto x = torch::randn({8, 4});
  const auto dataset = data::tensor_dataset({{"view_left", x}, {"view_right", -x}});
  TrainOptions options = encoder_options();
  options.model = torch::nn::Sequential(torch::nn::Linear(4, 3));
  torch::Tensor sum;
  options.criterion = [&](const torch::Tensor& left, const torch::Tensor& right) {
    sum = (left + right).detach();
    return (left - right).square().mean();
  };
  options.loaders = {{"train", {dataset, {.batch_size = 8}}}};
  options.valid_loader.reset();
  options.num_epochs = 1;
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->batch_end = [](State& s) { EXPECT_FALSE(s.batch.contains("embedding_left")); };
  options.callbacks = {hooks};
  SelfSupervisedRunner({.augment_prefix = "view", .loss_key = "distance"}).train(options);
  // W x + b + W (-x) + b: the same for all samples.
  ASSERT_TRUE(sum.defined());
  EXPECT_TRUE(torch::allclose(sum, sum[0].expand_as(sum), 1e-4, 1e-5));
}

TEST(SelfSupervisedRunner, SaysWhatIsMissing) {
  EXPECT_THAT(toy::error_of([] { SelfSupervisedRunner().train(encoder_options()); }),
              HasSubstr("set augment"));
}

TEST(SelfSupervisedRunner, PredictsTheInputItself) {
  const TrainOptions options = encoder_options();
  SelfSupervisedRunner runner(with_noise());
  const data::Loader& valid = options.loaders.at("valid");
  const Batch outputs = *runner.predict_loader({.loader = valid, .model = options.model}).next();
  EXPECT_THAT(outputs.keys(), testing::UnorderedElementsAre("embedding", "projection"));
  const Batch batch = *valid.stream({}).next();
  const torch::NoGradGuard no_grad;
  EXPECT_TRUE(torch::allclose(outputs["embedding"], options.model.outputs(batch["features"])[0]));
}

struct NamedImpl : torch::nn::Module {
  Batch forward(const torch::Tensor& x) { return {{"z", linear(x)}, {"h", x}}; }
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(4, 3));
};

TEST(SelfSupervisedRunner, TakesNamedOutputs) {
  TrainOptions options = encoder_options();
  options.model = std::make_shared<NamedImpl>();
  SelfSupervisedKeys keys = with_noise();
  keys.projection_prefix = "z";
  keys.embedding_prefix = "h";
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->forward = [](State& s) {
    EXPECT_EQ(s.batch["z_left"].size(1), 3);
    EXPECT_TRUE(s.batch["h_right"].equal(s.batch["augment_right"]));
  };
  options.callbacks = {hooks};
  EXPECT_EQ(SelfSupervisedRunner(keys).train(options).epochs, 3);
}

TEST(SelfSupervisedRunner, RefusesEqualAndEmptyKeys) {
  EXPECT_THAT(toy::error_of([] { SelfSupervisedRunner({.embedding_prefix = "projection"}); }),
              HasSubstr("'projection' is there twice"));
  EXPECT_THROW(SelfSupervisedRunner({.input_key = ""}), ConfigError);
}

}  // namespace
}  // namespace lockstep

#include "lockstep/train/batch_norm_pass.h"

#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/comm/local.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

// What a pass over the train loader of a run of one process needs.
class BatchNormPassTest : public testing::Test {
 protected:
  BatchNormPassTest() {
    state_.model = toy::model();
    state_.models = {{"model", state_.model}};
    state_.loaders = toy::loaders();
    state_.engine = std::make_shared<DeviceEngine>();
    state_.comm = &alone_;
    state_.progress.epoch = 2;
    state_.loader = "valid";
    state_.batch = Batch{{"mine", torch::ones({1})}};
  }

  bool run(const std::vector<CallbackPtr>& callbacks = {}) {
    const std::function<void(State&)> handle = [this](State& state) {
      state.model(state.batch["features"]);
      seen_.push_back(state.batch["features"].clone());
      EXPECT_EQ(state.loader, "train");
      EXPECT_FALSE(state.is_train);
      EXPECT_TRUE(state.model.is_training());
    };
    const std::vector<Phase> phases = {Phase{}};
    BatchNormPass pass{
        .state = state_, .callbacks = callbacks, .handle_batch = handle, .phases = phases};
    pass.buffers = buffers_ ? *buffers_ : state_.model.buffers();
    pass.modes = modes_;
    pass.loaders.push_back({.name = "train"});
    return remake_batch_norm(pass);
  }

  comm::Local alone_;
  State state_;
  std::optional<NamedTensors> buffers_;  // none: all
  Model::Modes modes_;
  std::vector<torch::Tensor> seen_;
};

TEST_F(BatchNormPassTest, ChangesOnlyTheStatistics) {
  const StateDict before = state_.model.state();
  EXPECT_TRUE(run());
  EXPECT_EQ(seen_.size(), 7U) << "50 samples in batches of 8";
  const StateDict after = state_.model.state();
  for (const auto& [name, value] : before) {
    const bool is_statistic = name == "1.running_mean" || name == "1.running_var";
    EXPECT_EQ(after.get<torch::Tensor>(name).equal(*value.get_if<torch::Tensor>()), !is_statistic)
        << name;
  }
  EXPECT_EQ(state_.loader, "valid");
  EXPECT_TRUE(state_.batch.contains("mine"));
}

TEST_F(BatchNormPassTest, ABatchNormInEvaluationModeKeepsItsStatistics) {
  const StateDict before = state_.model.state();
  modes_ = state_.model.modes();
  modes_.at("1") = false;
  EXPECT_TRUE(run()) << "it may be trained in a later epoch";
  EXPECT_EQ(state_.model.modes(), modes_);
  const StateDict after = state_.model.state();
  for (const auto& [name, value] : before) {
    EXPECT_TRUE(after.get<torch::Tensor>(name).equal(*value.get_if<torch::Tensor>())) << name;
  }
}

TEST_F(BatchNormPassTest, OtherBuffersStay) {
  const StateDict before = state_.model.state();
  buffers_ = NamedTensors{state_.model.buffers()[0]};
  ASSERT_EQ(buffers_->front().first, "1.running_mean");
  EXPECT_TRUE(run());
  const StateDict after = state_.model.state();
  for (const auto& [name, value] : before) {
    EXPECT_EQ(after.get<torch::Tensor>(name).equal(*value.get_if<torch::Tensor>()),
              name != "1.running_mean")
        << name;
  }
}

// A callback may leave the model in evaluation mode at the end of the training.
TEST_F(BatchNormPassTest, TheModesAreThoseOfTheTraining) {
  modes_ = state_.model.modes();
  const StateDict before = state_.model.state();
  state_.model.train(false);
  EXPECT_TRUE(run());
  EXPECT_EQ(state_.model.modes(), modes_);
  EXPECT_FALSE(state_.model.state()
                   .get<torch::Tensor>("1.running_mean")
                   .equal(before.get<torch::Tensor>("1.running_mean")));
}

TEST_F(BatchNormPassTest, IsTheSameEveryTime) {
  run();
  const torch::Tensor first = state_.model.state().get<torch::Tensor>("1.running_var");
  run();
  EXPECT_TRUE(state_.model.state().get<torch::Tensor>("1.running_var").equal(first));
}

TEST_F(BatchNormPassTest, CallbacksThatChangeBatchesAreCalled) {
  struct Quiet : toy::Hooks {
    CallbackTraits traits() const override { return {.changes_batch = false}; }
  };
  auto changes = std::make_shared<toy::Hooks>();
  changes->batch_start = [](State& s) { s.batch.set("features", s.batch["features"] * 0 + 2); };
  auto quiet = std::make_shared<Quiet>();
  quiet->batch_start = [](State&) { throw Error("not expected"); };
  run({changes, quiet});
  EXPECT_TRUE(seen_.front().equal(torch::full_like(seen_.front(), 2)));
}

TEST_F(BatchNormPassTest, SaysWhetherThereIsABatchNorm) {
  state_.model = torch::nn::Sequential(torch::nn::Linear(4, 3));
  EXPECT_FALSE(run());
}

}  // namespace
}  // namespace lockstep

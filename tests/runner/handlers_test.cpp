#include "lockstep/runner/handlers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "lockstep/callback/lambda.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Notes its calls. An epoch has one train batch.
class Noting : public SupervisedRunner {
 public:
  std::vector<std::string> calls;

 protected:
  void on_run_start(State&) override { calls.push_back("run_start"); }
  void on_epoch_start(State&) override { calls.push_back("epoch_start"); }
  void on_loader_start(State&) override { calls.push_back("loader_start"); }
  void on_batch_start(State&) override { calls.push_back("batch_start"); }
  void on_outputs(State&) override { calls.push_back("outputs"); }
  void on_forward(State&) override { calls.push_back("forward"); }
  void on_backward(State&) override { calls.push_back("backward"); }
  void on_batch_end(State&) override { calls.push_back("batch_end"); }
  void on_step(State&) override { calls.push_back("step"); }
  void on_loader_end(State&) override { calls.push_back("loader_end"); }
  void on_epoch_end(State&) override { calls.push_back("epoch_end"); }
  void on_checkpoint(State&) override { calls.push_back("checkpoint"); }
  void on_run_end(State&) override { calls.push_back("run_end"); }
  void on_exception(State&) override { calls.push_back("exception"); }
  bool overrides_on_backward() const override { return true; }
};

TrainOptions one_batch_run() {
  TrainOptions options = toy::options();
  options.loaders = {{"train", {toy::points(8), {.batch_size = 8}}}};
  options.valid_loader.reset();
  options.num_epochs = 1;
  return options;
}

TEST(Handlers, AreCalledBeforeCallbacksAtTheStartAndAfterThemAtTheEnd) {
  Noting runner;
  TrainOptions options = one_batch_run();
  const auto note = [&](const char* name) {
    return [&runner, name](State&) { runner.calls.emplace_back(name); };
  };
  options.callbacks = {on_epoch_start(note("callback at start")),
                       on_epoch_end(note("callback at end"))};
  runner.train(options);
  EXPECT_THAT(runner.calls,
              ElementsAre("run_start", "epoch_start", "callback at start", "loader_start",
                          "batch_start", "outputs", "forward", "backward", "batch_end", "step",
                          "loader_end", "callback at end", "epoch_end", "run_end"));
  runner.calls.clear();
  runner.evaluate_loader({.loader = options.loaders.at("train")});
  EXPECT_THAT(runner.calls,
              ElementsAre("run_start", "epoch_start", "loader_start", "batch_start", "outputs",
                          "forward", "batch_end", "step", "loader_end", "epoch_end", "run_end"));
  runner.calls.clear();
  options.callbacks = {on_epoch_start([](State&) { throw Error("it fails"); })};
  EXPECT_THAT(toy::error_of([&] { runner.train(options); }), HasSubstr("it fails"));
  EXPECT_THAT(runner.calls, ElementsAre("run_start", "epoch_start", "exception", "run_end"));
}

TEST(Handlers, AreToldOfACheckpoint) {
  const TemporaryDirectory folder;
  Noting runner;
  TrainOptions options = one_batch_run();
  options.logdir = folder.path();
  runner.train(options);
  const std::vector<std::string> last(runner.calls.end() - 3, runner.calls.end());
  EXPECT_THAT(last, ElementsAre("epoch_end", "checkpoint", "run_end"));
}

TEST(Handlers, WhatTheyChangeIsInTheCheckpoint) {
  class Counting : public SupervisedRunner {
   public:
    int epochs = 0;

   protected:
    void on_epoch_end(State& s) override {
      epochs = s.user.get_or<int>("epochs", 0) + 1;
      s.user.set("epochs", epochs);
    }
  };
  const TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.logdir = folder / "run";
  Counting().train(options);
  options.resume = "last";
  options.num_epochs = 5;
  Counting resumed;
  resumed.train(options);
  EXPECT_EQ(resumed.epochs, 5);
}

TEST(Handlers, CanReadGradients) {
  class Reading : public SupervisedRunner {
   public:
    double norm = 0;

   protected:
    void on_backward(State& s) override {
      norm += s.model.parameters()[0].second.grad().norm().item<double>();
    }
    bool overrides_on_backward() const override { return true; }
  };
  Reading runner;
  runner.train(one_batch_run());
  EXPECT_GT(runner.norm, 0);
}

TEST(Handlers, AnOnBackwardThatTheRunDoesNotKnowOfIsRefused) {
  class Unknown : public SupervisedRunner {
    void on_backward(State&) override {}
  };
  EXPECT_THAT(toy::error_of([] { Unknown().train(one_batch_run()); }),
              HasSubstr("override overrides_on_backward(), too"));
}

// A runner without handlers trains as fast as before: gradients may go directly to their place.
TEST(Handlers, CostNothingIfThereAreNone) {
  bool may_write = false;
  TrainOptions options = one_batch_run();
  options.callbacks = {on_forward([&](State& s) { may_write = s.may_write_gradients; })};
  toy::train(options);
  EXPECT_TRUE(may_write);
  Noting().train(options);
  EXPECT_FALSE(may_write);
}

}  // namespace
}  // namespace lockstep

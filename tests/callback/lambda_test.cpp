#include "lockstep/callback/lambda.h"

#include <cmath>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "lockstep/callback/checkpoint.h"
#include "lockstep/callback/control_flow.h"
#include "lockstep/runner/supervised.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Calls = std::vector<std::string>;

// One train batch and no other loader.
TrainOptions one_batch() {
  TrainOptions options = toy::options();
  options.loaders = {{"train", {toy::points(8), {.batch_size = 8}}}};
  options.valid_loader.reset();
  options.num_epochs = 1;
  return options;
}

TEST(Lambda, EachFunctionIsCalledAtItsHook) {
  Calls calls;
  const auto note = [&](const char* name) {
    return [&calls, name](State&) { calls.emplace_back(name); };
  };
  TrainOptions options = one_batch();
  options.callbacks = {on_exception(note("exception")),
                       on_run_end(note("run_end")),
                       on_epoch_end(note("epoch_end")),
                       on_loader_end(note("loader_end")),
                       on_step(note("step")),
                       on_batch_end(note("batch_end")),
                       on_backward(note("backward")),
                       on_forward(note("forward")),
                       on_outputs(note("outputs")),
                       on_batch_start(note("batch_start")),
                       on_loader_start(note("loader_start")),
                       on_epoch_start(note("epoch_start")),
                       on_run_start(note("run_start"))};
  toy::train(options);
  EXPECT_THAT(calls, ElementsAre("run_start", "epoch_start", "loader_start", "batch_start",
                                 "outputs", "forward", "backward", "batch_end", "step",
                                 "loader_end", "epoch_end", "run_end"));
  calls.clear();
  options.callbacks = {on_step([](State&) { throw Error("it fails"); }),
                       on_exception(note("exception"))};
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }), HasSubstr("it fails"));
  EXPECT_THAT(calls, ElementsAre("exception"));
}

// The outputs are there and the loss is not: what is done to them has an effect on the loss.
TEST(Lambda, OnOutputsComesBeforeTheCriterion) {
  TrainOptions options = one_batch();
  const double plain = toy::train(options).last_metrics.at("train").at("loss");
  options.model = toy::model();
  int calls = 0;
  options.callbacks = {on_outputs([&](State& s) {
    ++calls;
    EXPECT_FALSE(s.batch.contains("loss"));
    s.batch.set("logits", s.batch["logits"] * 0);
  })};
  const double uniform = toy::train(options).last_metrics.at("train").at("loss");
  EXPECT_EQ(calls, 1);
  EXPECT_NEAR(uniform, std::log(3), 1e-6);
  EXPECT_NE(plain, uniform);
}

TEST(Lambda, OnCheckpointIsCalledAfterEachFile) {
  const TemporaryDirectory folder;
  TrainOptions options = one_batch();
  options.num_epochs = 2;
  options.logdir = folder.path();
  Calls calls;
  const auto note = [&](State& s) {
    EXPECT_TRUE(std::filesystem::exists(*s.last_checkpoint));
    calls.push_back(fmt::format("{} {}", s.last_checkpoint->filename().string(),
                                s.inside_epoch ? "inside" : "after"));
  };
  options.callbacks = {on_checkpoint(note)};
  toy::train(options);
  EXPECT_THAT(calls, ElementsAre("last.pth after", "last.pth after"));
  calls.clear();
  options.callbacks = {on_checkpoint(note).only_if([](const State& s) { return s.inside_epoch; }),
                       CheckpointCallback({.save_every_batches = 1})};
  toy::train(options);
  EXPECT_THAT(calls, ElementsAre("last.pth inside", "last.pth inside"));
}

// The places in which a callback is called, as "epoch/loader/batch".
struct Log {
  Calls places;
  LambdaCallback::Function note = [this](State& s) {
    places.push_back(fmt::format("{}/{}/{}", s.progress.epoch, s.loader, s.loader_batch));
  };
};

// An epoch has 7 train batches and 3 valid batches.
TEST(Lambda, EveryCountsTheBatchesOfEachLoader) {
  TrainOptions options = toy::options();
  options.num_epochs = 2;
  for (const auto hook :
       {HookPoint::kBatchStart, HookPoint::kForward, HookPoint::kBatchEnd, HookPoint::kStep}) {
    Log log;
    options.callbacks = {LambdaCallback(hook, log.note).every(4)};
    toy::train(options);
    EXPECT_THAT(log.places, ElementsAre("1/train/4", "2/train/1", "2/train/5", "2/valid/1"))
        << static_cast<int>(hook);
  }
}

TEST(Lambda, EveryCountsEpochsAndPasses) {
  TrainOptions options = toy::options();
  options.num_epochs = 5;
  std::vector<std::int64_t> epochs;
  Log passes;
  options.callbacks = {on_epoch_end([&](State& s) { epochs.push_back(s.progress.epoch); }).every(2),
                       on_loader_start(passes.note).every(2)};
  toy::train(options);
  EXPECT_THAT(epochs, ElementsAre(2, 4));
  EXPECT_THAT(passes.places, ElementsAre("2/train/0", "2/valid/0", "4/train/0", "4/valid/0"));
  epochs.clear();
  toy::train(options);
  EXPECT_THAT(epochs, ElementsAre(2, 4)) << "a new run counts from the beginning";
}

TEST(Lambda, OnceIsTheFirstCallThatIsAllowed) {
  TrainOptions options = toy::options();
  Log log;
  options.callbacks = {
      on_batch_end(log.note).once().only_if([](const State& s) { return s.loader == "valid"; }),
      on_step(log.note).once().every(2)};
  toy::train(options);
  EXPECT_THAT(log.places, ElementsAre("1/train/2", "1/valid/1"));
}

TEST(Lambda, TwoPredicatesMustBothAllowIt) {
  TrainOptions options = toy::options();
  Log log;
  options.callbacks = {on_step(log.note)
                           .only_if([](const State& s) { return s.loader == "valid"; })
                           .only_if([](const State& s) { return s.loader_batch == 2; })};
  toy::train(options);
  EXPECT_THAT(log.places, ElementsAre("1/valid/2", "2/valid/2", "3/valid/2"));
}

// The last batch has one sample, so the second shard is empty and its worker does not reach the
// hook. It must count that batch nevertheless.
TEST(Lambda, AllWorkersCountTheSame) {
  for (const int workers : {1, 2}) {
    TrainOptions options = one_batch();
    options.model = torch::nn::Sequential(torch::nn::Linear(4, 3));  // accepts a single sample
    options.loaders = {{"train", {toy::points(49), {.batch_size = 8}}}};
    options.num_epochs = 2;
    options.ddp = true;
    options.workers = workers;
    options.shards = 2;
    std::int64_t last_batch = 0, calls = 0, allowed_once = 0;
    std::vector<std::uint64_t> batches_of_ranks, calls_of_ranks, once_of_ranks;
    options.callbacks = {
        on_batch_start([&](State& s) {
          last_batch = s.loader_batch;
          ++calls;
        }).every(3),
        // Only the first shard of the last batch has samples.
        on_forward([&](State&) { ++allowed_once; }).once().only_if([](const State& s) {
          return s.loader_batch == 4;
        }),
        on_epoch_end([&](State& s) {
          batches_of_ranks = s.comm->vote(static_cast<std::uint64_t>(last_batch));
          calls_of_ranks = s.comm->vote(static_cast<std::uint64_t>(calls));
          once_of_ranks = s.comm->vote(static_cast<std::uint64_t>(allowed_once));
        })};
    toy::train(options);
    if (workers == 1) {
      EXPECT_THAT(batches_of_ranks, ElementsAre(2u));
      EXPECT_THAT(calls_of_ranks, ElementsAre(4u)) << "two batches of two shards";
      EXPECT_THAT(once_of_ranks, ElementsAre(1u));
    } else {
      EXPECT_THAT(batches_of_ranks, ElementsAre(2u, 2u)) << "the sixth batch of the run";
      EXPECT_THAT(calls_of_ranks, ElementsAre(2u, 2u));
      EXPECT_THAT(once_of_ranks, ElementsAre(1u, 0u));
    }
  }
}

// The callbacks whose calls must be the same in a run without interruption.
struct Counting {
  Calls calls;
  Callbacks callbacks() {
    const auto note = [this](const char* name) {
      return [this, name](State& s) {
        calls.push_back(
            fmt::format("{} {}/{}/{}", name, s.progress.epoch, s.loader, s.loader_batch));
      };
    };
    return {on_step(note("step")).every(4),       on_batch_end(note("batch")).every(3),
            on_epoch_end(note("epoch")).every(2), on_loader_end(note("pass")).every(2),
            on_run_start(note("run")).once(),     on_step(note("once")).once().every(5)};
  }
};

TEST(Lambda, AResumedRunGoesOnCounting) {
  TrainOptions options = toy::options();
  options.num_epochs = 5;
  Counting straight;
  options.callbacks = straight.callbacks();
  toy::train(options);

  const TemporaryDirectory folder;
  Counting parts;
  options.logdir = folder / "run";
  options.callbacks = parts.callbacks();
  options.num_epochs = 3;
  toy::train(options);
  options.callbacks = parts.callbacks();
  options.num_epochs = 5;
  options.resume = "last";
  toy::train(options);
  EXPECT_EQ(parts.calls, straight.calls);
}

// Stops in batch 6 of epoch 2, after a checkpoint that was made in batch 5.
TEST(Lambda, ARunThatIsResumedInsideAnEpochGoesOnCounting) {
  TrainOptions options = toy::options();
  options.num_epochs = 4;
  Calls starts;
  const auto watch = [&] {
    return Callbacks{on_epoch_start([&](State& s) {
                       starts.push_back(fmt::format("e{}", s.progress.epoch));
                     }).every(3),
                     on_loader_start([&](State& s) {
                       if (s.is_train) starts.push_back(fmt::format("l{}", s.progress.epoch));
                     }).every(3)};
  };
  Counting straight;
  options.callbacks = straight.callbacks();
  for (const auto& item : watch()) options.callbacks.add(item);
  toy::train(options);
  const Calls expected_starts = std::exchange(starts, {});
  EXPECT_THAT(expected_starts, ElementsAre("e3", "l3"));

  const TemporaryDirectory folder;
  Counting parts;
  const auto all = [&](bool fails) {
    Callbacks callbacks = parts.callbacks();
    for (const auto& item : watch()) callbacks.add(item);
    callbacks.add(CheckpointCallback({.save_every_batches = 5}));
    if (fails) {
      callbacks.add(
          on_batch_start([](State&) { throw Error("stopped"); }).only_if([](const State& s) {
            return s.progress.epoch == 2 && s.is_train && s.loader_batch == 6;
          }));
    }
    return callbacks;
  };
  options.logdir = folder / "run";
  options.callbacks = all(true);
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }), HasSubstr("stopped"));
  options.callbacks = all(false);
  options.resume = "last";
  toy::train(options);
  EXPECT_EQ(parts.calls, straight.calls);
  EXPECT_EQ(starts, expected_starts);
}

TEST(Lambda, IsCalledOnTheRanksThatWereAskedFor) {
  TrainOptions options = toy::options();
  options.num_epochs = 2;
  options.ddp = true;
  options.workers = 2;
  std::uint64_t primary = 0, counted = 0, others = 0;
  std::vector<std::uint64_t> of_primary, of_counted, of_others;
  options.callbacks = {on_epoch_end([&](State&) { ++primary; }).on(Ranks::kPrimary),
                       on_epoch_end([&](State&) { ++counted; }).on(Ranks::kPrimary).every(2),
                       on_epoch_end([&](State&) { ++others; }).on(Ranks::kOthers),
                       on_epoch_end([&](State& s) {
                         of_primary = s.comm->vote(primary);
                         of_counted = s.comm->vote(counted);
                         of_others = s.comm->vote(others);
                       })};
  toy::train(options);
  EXPECT_THAT(of_primary, ElementsAre(2u, 0u));
  EXPECT_THAT(of_counted, ElementsAre(1u, 0u));
  EXPECT_THAT(of_others, ElementsAre(0u, 2u));
}

// Rank 0 has one callback more under the same name than the others; their counts must not be mixed
// up.
TEST(Lambda, AResumedRunGoesOnCountingOnEveryRank) {
  const TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.logdir = folder / "run";
  options.ddp = true;
  options.workers = 2;
  const auto callbacks = [&](std::int64_t& last) {
    return Callbacks{on_epoch_end([](State&) {}).on(Ranks::kPrimary),
                     on_epoch_end([&last](State& s) { last = s.progress.epoch; }).every(2)};
  };
  std::int64_t last = 0;
  options.num_epochs = 1;
  options.callbacks = callbacks(last);
  toy::train(options);
  std::vector<std::uint64_t> of_ranks;
  options.callbacks = callbacks(last);
  options.callbacks.add(
      on_run_end([&](State& s) { of_ranks = s.comm->vote(static_cast<std::uint64_t>(last)); }));
  options.num_epochs = 3;
  options.resume = "last";
  toy::train(options);
  EXPECT_THAT(of_ranks, ElementsAre(2u, 2u));
}

TEST(Lambda, TraitsFollowFromTheHook) {
  const auto nothing = [](State&) {};
  EXPECT_TRUE(on_backward(nothing).traits().uses_gradients);
  EXPECT_FALSE(on_forward(nothing).traits().uses_gradients);
  EXPECT_TRUE(on_forward(nothing).traits().changes_batch);
  EXPECT_TRUE(on_outputs(nothing).traits().changes_batch);
  EXPECT_EQ(on_checkpoint(nothing).traits().metric_names, no_metrics());
  EXPECT_FALSE(on_step(nothing).traits().changes_batch);
  EXPECT_FALSE(on_loader_end(nothing).traits().metric_names);
  EXPECT_EQ(on_epoch_end(nothing).traits().metric_names, no_metrics());
  const LambdaCallback changed = on_backward(nothing)
                                     .uses_gradients(false)
                                     .changes_batch(true)
                                     .needs_training(true)
                                     .adds_metrics({"a"})
                                     .named("mine")
                                     .on(Ranks::kPrimary);
  EXPECT_FALSE(changed.traits().uses_gradients);
  EXPECT_TRUE(changed.traits().changes_batch);
  EXPECT_TRUE(changed.traits().needs_training);
  EXPECT_EQ(changed.traits().metric_names, std::vector<std::string>{"a"});
  EXPECT_EQ(changed.traits().ranks, Ranks::kPrimary);
  EXPECT_EQ(changed.every(2).traits().ranks, Ranks::kAll) << "all ranks count";
  EXPECT_EQ(changed.name(), "mine");
  EXPECT_EQ(on_step(nothing).name(), "on_step");
}

TEST(Lambda, AddsMetricsToALoader) {
  TrainOptions options = toy::options();
  options.callbacks = {
      on_loader_end([](State& s) { s.loader_metrics["batches"] = double(s.loader_batch); })};
  EXPECT_EQ(toy::train(options).last_metrics.at("valid").at("batches"), 3);
}

TEST(Lambda, RefusesWhatMakesNoSense) {
  const auto nothing = [](State&) {};
  EXPECT_THAT(toy::error_of([] { on_step({}); }), HasSubstr("on_step: expected a function"));
  EXPECT_THAT(toy::error_of([&] { (void)on_step(nothing).every(0); }), HasSubstr("got 0"));
  EXPECT_THAT(toy::error_of([&] { (void)on_run_start(nothing).every(2); }), HasSubstr("once"));
  EXPECT_THAT(toy::error_of([&] { (void)on_run_end(nothing).once(); }), HasSubstr("no sense"));
  EXPECT_THAT(toy::error_of([&] { (void)on_step(nothing).only_if({}); }), HasSubstr("only_if"));
  EXPECT_THAT(toy::error_of([&] { (void)on_checkpoint(nothing).every(2); }), HasSubstr("rank 0"));
  EXPECT_THAT(toy::error_of([&] { (void)on_checkpoint(nothing).once(); }), HasSubstr("rank 0"));
}

}  // namespace
}  // namespace lockstep

// Runs for tests of the callbacks that compute metrics: one process against several workers, and a
// run that was interrupted inside an epoch.
#pragma once

#include <chrono>
#include <functional>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "lockstep/callback/checkpoint.h"
#include "lockstep/engine/distributed.h"
#include "tests/support/toy.h"

namespace lockstep::toy {

// What is trained, and with which metrics.
struct MetricRun {
  data::DatasetPtr train, valid;  // features [N, 4]
  std::int64_t outputs = 3;       // of the model
  Criterion criterion = torch::nn::CrossEntropyLoss();
  std::function<Model()> model = {};     // default: a linear layer
  std::function<Callbacks()> callbacks;  // new ones for every run
};

inline TrainOptions options_of(const MetricRun& run, const Callbacks& callbacks, int workers = 1) {
  torch::manual_seed(3);
  TrainOptions options;
  options.model =
      run.model ? run.model() : Model(torch::nn::Sequential(torch::nn::Linear(4, run.outputs)));
  options.criterion = run.criterion;
  options.optimizer = optim::SGD{.lr = 0.1};
  options.loaders = {{"train", {run.train, {.batch_size = 4, .shuffle = true}}},
                     {"valid", {run.valid, {.batch_size = 2}}}};
  options.num_epochs = 2;
  options.console = false;
  options.callbacks = callbacks;
  options.engine = std::make_shared<DistributedDataParallelEngine>(DistributedDataParallelOptions{
      .workers = workers, .shards = 3, .timeout = std::chrono::seconds(60)});
  return options;
}

// Throws in the last pass. Rank 1 has it alone if there are two workers.
inline std::shared_ptr<Hooks> cut_in_the_last_pass(bool is_once) {
  auto cut = std::make_shared<Hooks>();
  cut->batch_start = [is_once](State& s) {
    const bool is_here = s.progress.epoch == 2 && s.loader == "valid" && s.loader_batch == 2 &&
                         s.comm->rank() == s.comm->size() - 1;
    if (is_here && !(is_once && s.restarts > 0)) throw Error("cut");
  };
  return cut;
}

// The metrics of all epochs are the same, to the bit, for 1, 2 and 3 workers, for a run that was
// interrupted inside an epoch and resumed, and for one that recovered there. Returns them.
inline std::map<std::int64_t, EpochMetrics> expect_same_history(const MetricRun& run) {
  const auto straight = train(options_of(run, run.callbacks()));
  for (const int workers : {2, 3}) {
    EXPECT_EQ(train(options_of(run, run.callbacks(), workers)).history, straight.history)
        << workers << " workers";
  }

  TemporaryDirectory folder;
  const auto resumable = [&] {
    Callbacks callbacks = run.callbacks();
    callbacks.add(CheckpointCallback({.save_every_batches = 1}));
    TrainOptions options = options_of(run, callbacks);
    options.logdir = folder / "run";
    return options;
  };
  TrainOptions first = resumable();
  first.callbacks.add(cut_in_the_last_pass(/*is_once=*/false));
  EXPECT_THAT(error_of([&] { train(first); }), testing::HasSubstr("cut"));
  TrainOptions second = resumable();
  second.resume = "last";
  EXPECT_EQ(train(second).history, straight.history) << "resumed";

  Warnings of_the_recovery;
  TrainOptions recovered = options_of(run, run.callbacks(), 2);
  recovered.max_restarts = 1;
  recovered.callbacks.add(cut_in_the_last_pass(/*is_once=*/true));
  EXPECT_EQ(train(recovered).history, straight.history) << "recovered";
  return straight.history;
}

}  // namespace lockstep::toy

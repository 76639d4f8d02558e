// Runs for tests of the callbacks that average weights.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "lockstep/callback/checkpoint.h"
#include "lockstep/callback/lambda.h"
#include "lockstep/engine/distributed.h"
#include "tests/support/toy.h"

namespace lockstep::toy {

using MakeCallback = std::function<CallbackPtr()>;

inline std::shared_ptr<Engine> workers_of(int workers) {
  return std::make_shared<DistributedDataParallelEngine>(DistributedDataParallelOptions{
      .workers = workers, .shards = 3, .timeout = std::chrono::seconds(60)});
}

// Each of the three shards of a batch has samples enough for batch norm.
inline TrainOptions averaged_options(const MakeCallback& make, int workers = 1) {
  TrainOptions options = toy::options();
  options.loaders = {{"train", {points(54), {.batch_size = 6, .shuffle = true}}},
                     {"valid", {points(30, 2), {.batch_size = 4}}}};
  options.callbacks.add(make());
  options.engine = workers_of(workers);
  return options;
}

struct Ended {
  std::string hash;
  std::map<std::int64_t, EpochMetrics> history;

  bool operator==(const Ended&) const = default;
};

inline Ended ended(const TrainOptions& options) {
  const TrainResult result = train(options);
  return {.hash = result.weights_hash, .history = result.history};
}

// Throws once in the last epoch, in a pass over the loader. Rank 1 throws if there are two workers.
inline std::shared_ptr<Hooks> cut_in(const std::string& loader) {
  auto cut = std::make_shared<Hooks>();
  cut->batch_end = [loader](State& s) {
    const bool is_here = s.progress.epoch == 3 && s.loader == loader && s.loader_batch == 2 &&
                         s.comm->rank() == s.comm->size() - 1;
    if (is_here && s.restarts == 0) throw Error("cut");
  };
  return cut;
}

// The same at the end of the pass: a checkpoint after every batch has all its batches, and nothing
// of what follows them.
inline std::shared_ptr<Hooks> cut_after(const std::string& loader) {
  auto cut = std::make_shared<Hooks>();
  cut->loader_end = [loader](State& s) {
    const bool is_here =
        s.progress.epoch == 3 && s.loader == loader && s.comm->rank() == s.comm->size() - 1;
    if (is_here && s.restarts == 0) throw Error("cut");
  };
  return cut;
}

// The weights for use and all metrics are the same, to the bit, for 1, 2 and 3 workers, for a run
// that was resumed between epochs, inside the training, after its last batch and inside the
// validation, and for a run that recovered there.
inline void expect_same_average(const MakeCallback& make) {
  const Ended straight = ended(averaged_options(make));
  for (const int workers : {2, 3}) {
    EXPECT_EQ(ended(averaged_options(make, workers)), straight) << workers << " workers";
  }
  const std::vector<std::pair<std::string, std::function<std::shared_ptr<Hooks>()>>> cuts = {
      {"inside of train", [] { return cut_in("train"); }},
      {"after train", [] { return cut_after("train"); }},
      {"inside of valid", [] { return cut_in("valid"); }}};
  for (const auto& [where, make_cut] : cuts) {
    TemporaryDirectory folder;
    const auto resumable = [&](int workers) {
      TrainOptions options = averaged_options(make, workers);
      options.callbacks.add(CheckpointCallback({.save_every_batches = 1}));
      options.logdir = folder / "run";
      return options;
    };
    TrainOptions first = resumable(1);
    first.callbacks.add(make_cut());
    EXPECT_THAT(error_of([&] { train(first); }), testing::HasSubstr("cut"));
    TrainOptions second = resumable(2);
    second.resume = "last";
    EXPECT_EQ(ended(second), straight) << "resumed " << where;

    Warnings of_the_recovery;
    TrainOptions recovered = averaged_options(make, 2);
    recovered.max_restarts = 1;
    recovered.callbacks.add(make_cut());
    EXPECT_EQ(ended(recovered), straight) << "recovered " << where;
  }
  TemporaryDirectory folder;
  TrainOptions first = averaged_options(make);
  first.logdir = folder / "run";
  first.num_epochs = 2;
  train(first);
  TrainOptions second = averaged_options(make);
  second.logdir = folder / "run";
  second.resume = "last";
  EXPECT_EQ(ended(second), straight) << "resumed between epochs";
}

// A student that is trained, and a teacher that is not.
inline TrainOptions two_networks(int workers = 1) {
  TrainOptions options = toy::options();
  options.model = Model();
  options.models = {{"student", model(7)}, {"teacher", model(8)}};
  options.optimizer = optim::OptimizerSpec();
  options.optimizers = {{"student", optim::Adam{.lr = 0.01}}};
  options.loaders = {{"train", {points(54), {.batch_size = 6, .shuffle = true}}},
                     {"valid", {points(30, 2), {.batch_size = 4}}}};
  options.engine = workers_of(workers);
  return options;
}

// Trains the student on the labels and on the outputs of the teacher.
class TwoNetworks : public Runner {
 public:
  void handle_batch(State& state) override {
    const torch::Tensor features = state.batch["features"];
    const torch::Tensor student = state.models["student"](features);
    const torch::Tensor teacher = state.models["teacher"](features);
    state.set_loss(torch::nn::functional::cross_entropy(student, state.batch["targets"]) +
                   0.1 * torch::mse_loss(student, teacher));
  }
};

}  // namespace lockstep::toy

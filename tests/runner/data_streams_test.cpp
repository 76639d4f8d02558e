// Training on streams, and on data of which every host has a part, by real processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/file.h"
#include "lockstep/callback/checkpoint.h"
#include "lockstep/data/iterable_dataset.h"
#include "lockstep/data/partitioned.h"
#include "lockstep/engine/distributed.h"
#include "tests/support/toy.h"
#include "tests/support/two_hosts.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// The points of toy::points(), drawn one by one. Shards get them in turn.
class PointStream : public data::IterableDataset {
 public:
  PointStream(std::int64_t count, std::optional<std::int64_t> said) : count_(count), said_(said) {}

  std::unique_ptr<data::SampleSource> open(const data::StreamPart& part) const override {
    return data::share_of(std::make_unique<Source>(part, count_), part.shard);
  }
  std::optional<std::int64_t> samples() const override { return said_; }

 private:
  struct Source : data::SampleSource {
    Source(const data::StreamPart& part, std::int64_t samples)
        : key{.seed = part.key.seed + static_cast<std::uint64_t>(part.pass),
              .epoch = part.key.epoch},
          count(samples) {}
    std::optional<Batch> next() override {
      if (at == count) return std::nullopt;
      data::SampleRandom random(key, at++);
      const torch::Tensor point = torch::randn({4}, random.generator());
      return Batch{{"features", point}, {"targets", point.narrow(0, 0, 3).argmax()}};
    }
    data::EpochKey key;
    std::int64_t count, at = 0;
  };

  std::int64_t count_;
  std::optional<std::int64_t> said_;
};

std::shared_ptr<Engine> two_shards(int workers) {
  return std::make_shared<DistributedDataParallelEngine>(DistributedDataParallelOptions{
      .workers = workers, .shards = 2, .threads = 1, .timeout = std::chrono::seconds(60)});
}

// Streams with a known and an unknown number of samples. In the last batch of the known one the
// shards have 3 and 2 samples, and in that of the valid loader 1 and 0; the other one ends inside
// the epoch.
data::Loaders stream_loaders(bool known, std::int64_t prefetch = 0) {
  const auto train = known ? std::make_shared<PointStream>(53, 53)
                           : std::make_shared<PointStream>(37, std::nullopt);
  data::LoaderOptions options{.batch_size = 6, .prefetch = prefetch};
  if (!known) options.max_batches = 5;
  return {{"train", {train, options}},
          {"valid", {std::make_shared<PointStream>(21, 21), {.batch_size = 5}}}};
}

TrainOptions stream_options(int workers, bool known, std::int64_t prefetch = 0) {
  TrainOptions options = toy::options();
  options.loaders = stream_loaders(known, prefetch);
  options.engine = two_shards(workers);
  return options;
}

TEST(DataStreams, TheSameBitsForAnyNumberOfWorkers) {
  for (const bool known : {true, false}) {
    const auto alone = toy::train(stream_options(1, known));
    for (const std::int64_t prefetch : {0, 2}) {
      const auto two = toy::train(stream_options(2, known, prefetch));
      EXPECT_EQ(two.weights_hash, alone.weights_hash) << known << ", prefetch " << prefetch;
      EXPECT_EQ(two.history, alone.history);
    }
  }
}

TEST(DataStreams, ResumeInTheMiddleOfAnEpoch) {
  for (const bool known : {true, false}) {
    TemporaryDirectory folder;
    const auto straight = toy::train(stream_options(1, known));
    TrainOptions stopped = stream_options(2, known);
    stopped.logdir = folder / "run";
    stopped.callbacks.add(CheckpointCallback({.save_every_batches = 1}));
    auto hooks = std::make_shared<toy::Hooks>();
    hooks->batch_end = [](State& s) {
      if (s.is_train && s.progress.epoch == 2 && s.loader_batch == 4) throw Error("the power went");
    };
    stopped.callbacks.add(hooks);
    EXPECT_THAT(toy::error_of([&] { toy::train(stopped); }), HasSubstr("the power went"));
    TrainOptions rest = stream_options(1, known);
    rest.logdir = folder / "run";
    rest.resume = "last";
    const auto resumed = toy::train(rest);
    EXPECT_EQ(resumed.weights_hash, straight.weights_hash);
    EXPECT_EQ(resumed.history, straight.history);
  }
}

TEST(DataStreams, StepsPerEpochGoOnInTheStream) {
  const auto options = [](int workers) {
    TrainOptions made = stream_options(workers, true);
    made.steps_per_epoch = 3;
    return made;
  };
  const auto alone = toy::train(options(1));
  EXPECT_EQ(alone.steps, 9);
  EXPECT_EQ(toy::train(options(2)).weights_hash, alone.weights_hash);
}

// Without samples() and max_batches, an epoch has the steps that the run says.
TEST(DataStreams, TrainingByStepsNeedsNoLength) {
  const auto options = [](int workers) {
    TrainOptions made = toy::options();
    made.loaders.set("train", {std::make_shared<PointStream>(37, std::nullopt), {.batch_size = 6}});
    made.engine = two_shards(workers);
    return made;
  };
  const auto with_max_batches = [&](std::int64_t batches) {
    TrainOptions made = options(1);
    made.loaders.set(
        "train", {made.loaders.at("train").dataset(), {.batch_size = 6, .max_batches = batches}});
    return made;
  };
  EXPECT_THAT(toy::error_of([&] { toy::train(options(1)); }),
              AllOf(HasSubstr("loader 'train': max_batches: expected"),
                    HasSubstr("steps_per_epoch or num_steps")));
  for (const int workers : {1, 2}) {
    TrainOptions epochs = options(workers);
    epochs.steps_per_epoch = 4;
    epochs.accumulation_steps = 2;
    const auto by_epochs = toy::train(epochs);
    EXPECT_EQ(by_epochs.steps, 12);
    TrainOptions told = with_max_batches(8);
    told.accumulation_steps = 2;
    EXPECT_EQ(by_epochs.weights_hash, toy::train(told).weights_hash);

    TrainOptions steps = options(workers);
    steps.num_epochs = 1;
    steps.num_steps = 5;
    const auto by_steps = toy::train(steps);
    EXPECT_EQ(by_steps.steps, 5);
    EXPECT_EQ(by_steps.epochs, 1);
    TrainOptions once = with_max_batches(5);
    once.num_epochs = 1;
    EXPECT_EQ(by_steps.weights_hash, toy::train(once).weights_hash);
  }
  TrainOptions limited = options(1);
  limited.limit_batches = {{"train", 2}};
  EXPECT_EQ(toy::train(limited).steps, 6);
  TrainOptions validated = options(1);
  validated.steps_per_epoch = 4;
  validated.loaders.set("valid", validated.loaders.at("train"));
  EXPECT_THAT(toy::error_of([&] { toy::train(validated); }),
              AllOf(HasSubstr("loader 'valid': max_batches"), Not(HasSubstr("num_steps"))));
}

TEST(DataStreams, BatchTransformsHaveTheSameBitsForAnyNumberOfWorkers) {
  const auto options = [](int workers, bool changes) {
    TrainOptions made = stream_options(workers, true, workers - 1);
    data::LoaderOptions loader = made.loaders.at("train").options();
    if (changes) {
      loader.batch_transform = [](Batch batch, data::SampleRandom& random) {
        batch.set("features", batch["features"] + random.normal());
        return batch;
      };
    }
    made.loaders.set("train", {made.loaders.at("train").dataset(), loader});
    return made;
  };
  const auto alone = toy::train(options(1, true));
  EXPECT_EQ(toy::train(options(2, true)).weights_hash, alone.weights_hash);
  EXPECT_NE(toy::train(options(1, false)).weights_hash, alone.weights_hash);
}

// Two processes with one worker each, of which each has half of the data.
TEST(DataStreams, HostsWithTheirOwnDataTrainToTheSameBits) {
  const auto options = [](const std::vector<std::int64_t>& parts) {
    data::PartitionOptions partition{.parts = 2};
    for (const std::int64_t part : parts) {
      partition.here[part] = toy::points(26, static_cast<std::uint64_t>(part) + 10);
    }
    const auto train = data::partitioned(partition);
    TrainOptions made = toy::options();
    made.loaders = {{"train", {train, {.batch_size = 4, .sampler = train->sampler()}}},
                    {"valid", {toy::points(30, 2), {.batch_size = 10}}}};
    return made;
  };
  TrainOptions whole = options({0, 1});
  whole.engine = two_shards(1);
  const auto alone = toy::train(whole);
  expect_same_bits_on_two_hosts(alone, {.workers = 1, .shards = 2, .threads = 1},
                                [&](int host) { return options({host}); });
}

}  // namespace
}  // namespace lockstep

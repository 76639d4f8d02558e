// Training on streams, and on data of which every host has a part, by real processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/torch.h>

#include "lockstep/base/file.h"
#include "lockstep/callback/checkpoint.h"
#include "lockstep/data/iterable_dataset.h"
#include "lockstep/data/partitioned.h"
#include "lockstep/engine/distributed.h"
#include "tests/comm/free_port.h"
#include "tests/support/torch_fork.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

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
  const int port = comm::free_port();
  const auto host = [&](int rank) {
    TrainOptions own = options({rank});
    own.engine = std::make_shared<DistributedDataParallelEngine>(
        DistributedDataParallelOptions{.workers = 1,
                                       .shards = 2,
                                       .port = port,
                                       .world_size = 2,
                                       .first_rank = rank,
                                       .token = "ours",
                                       .threads = 1,  // as in the other run
                                       .timeout = std::chrono::seconds(30)});
    return toy::train(own);
  };
  const pid_t other =
      start_process([&] { return host(1).weights_hash == alone.weights_hash ? 0 : 2; });
  ASSERT_GE(other, 0);
  const auto here = host(0);
  EXPECT_EQ(here.weights_hash, alone.weights_hash);
  EXPECT_EQ(here.history, alone.history);
  int status = 0;
  ASSERT_EQ(waitpid(other, &status, 0), other);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace lockstep

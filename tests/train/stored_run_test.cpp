#include "lockstep/train/stored_run.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

StoredContent content(double value) {
  return {.point = KeptRun{.snapshot = {{"weights", torch::full({3}, value)}, {"epoch", 2}},
                           .best_weights = StateDict{{"weights", torch::full({3}, -value)}},
                           .unavailable = {}},
          .totals = {.epochs_before = 1,
                     .steps_before = 20,
                     .train_seconds = 0.5,
                     .train_samples = 640},
          .recoveries = 4};
}

TEST(StoredRun, APointIsReadBackAsItWas) {
  const auto file = std::make_shared<process::MemoryFile>();
  StoredRun run(file, 0);
  EXPECT_FALSE(run.stored());
  run.write(content(1));
  const StoredContent written = content(2);
  run.write(written);

  // Another process of the host reads it.
  StoredRun other(file, 0);
  const auto stored = other.stored();
  ASSERT_TRUE(stored);
  EXPECT_EQ(stored->sequence, 2u);
  const StoredContent found = StoredRun::decode(stored->bytes);
  ASSERT_TRUE(found.point);
  const auto weights = found.point->snapshot.get<torch::Tensor>("weights");
  EXPECT_TRUE(torch::equal(weights, torch::full({3}, 2.0)));
  EXPECT_EQ(found.point->snapshot.get<std::int64_t>("epoch"), 2);
  EXPECT_TRUE(torch::equal(found.point->best_weights->get<torch::Tensor>("weights"),
                           torch::full({3}, -2.0)));
  EXPECT_EQ(found.totals.epochs_before, 1);
  EXPECT_EQ(found.totals.steps_before, 20);
  EXPECT_EQ(found.totals.train_seconds, 0.5);
  EXPECT_EQ(found.totals.train_samples, 640);
  EXPECT_NEAR(std::chrono::duration<double>(found.totals.start - written.totals.start).count(), 0,
              0.5);
  EXPECT_EQ(found.recoveries, 4);
  EXPECT_FALSE(found.is_first_point);
  EXPECT_FALSE(StoredRun(file, 1).stored()) << "the program's second train() has its own point";
}

TEST(StoredRun, TheFirstPointOfAResumedRunIsMarked) {
  StoredRun run(std::make_shared<process::MemoryFile>(), 0);
  StoredContent first = content(1);
  first.is_first_point = true;
  run.write(first);
  EXPECT_TRUE(StoredRun::decode(run.stored()->bytes).is_first_point);
}

TEST(StoredRun, ARunThatHasOnlyBegunHasNoPoint) {
  const auto file = std::make_shared<process::MemoryFile>();
  StoredRun run(file, 0);
  run.write({.totals = {.epochs_before = 3}});
  const StoredContent found = StoredRun::decode(run.stored()->bytes);
  EXPECT_FALSE(found.point);
  EXPECT_EQ(found.totals.epochs_before, 3);
}

TEST(StoredRun, AnotherHostTakesNewerPointsOnly) {
  StoredRun here(std::make_shared<process::MemoryFile>(), 0);
  StoredRun there(std::make_shared<process::MemoryFile>(), 0);
  here.write(content(1));
  here.write(content(2));
  there.take(*here.stored());
  EXPECT_EQ(there.stored()->bytes, here.stored()->bytes);
  EXPECT_EQ(there.sequence(), 2u);
  there.take({.sequence = 1, .bytes = "older"});
  EXPECT_EQ(there.stored()->sequence, 2u);
}

TEST(StoredRun, CallsThatAreLeftOutKeepTheirNumbers) {
  const int first = next_stored_run();
  EXPECT_EQ(next_stored_run(), first + 1);
  skip_stored_runs(2);
  EXPECT_EQ(next_stored_run(), first + 4);
}

TEST(StoredRun, DamagedBytesAreRefused) {
  EXPECT_THROW(StoredRun::decode("no pickle"), CheckpointError);
}

}  // namespace
}  // namespace lockstep

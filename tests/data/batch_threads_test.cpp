#include "lockstep/data/batch_threads.h"

#include <atomic>
#include <latch>
#include <stdexcept>

#include <ATen/Parallel.h>
#include <gmock/gmock.h>

#include "tests/data/error_text.h"

namespace lockstep::data {
namespace {

Batch numbered(std::size_t number) {
  return {{"n", torch::tensor(static_cast<std::int64_t>(number))}};
}

std::int64_t number_of(const std::optional<Batch>& batch) {
  return batch ? (*batch)["n"].item<std::int64_t>() : -1;
}

TEST(BatchThreads, GiveBatchesInOrder) {
  for (const std::size_t threads : {1, 2, 5}) {
    BatchThreads batches(numbered, {.batches = 40, .threads = threads, .ahead = 7});
    for (std::int64_t k = 0; k < 40; ++k) EXPECT_EQ(number_of(batches.next()), k);
    EXPECT_FALSE(batches.next());
    EXPECT_FALSE(batches.next());
  }
}

// The first batch is ready only after the second one was made.
TEST(BatchThreads, WorkAtTheSameTime) {
  std::latch second_made(1);
  BatchThreads batches(
      [&](std::size_t number) {
        if (number == 0) second_made.wait();
        if (number == 1) second_made.count_down();
        return numbered(number);
      },
      {.batches = 2, .threads = 2, .ahead = 2});
  EXPECT_EQ(number_of(batches.next()), 0);
  EXPECT_EQ(number_of(batches.next()), 1);
}

TEST(BatchThreads, AreNotMoreThanAhead) {
  std::atomic<std::int64_t> begun = 0;
  std::atomic<std::int64_t> most = 0;
  std::int64_t given = 0;
  std::mutex mutex;
  BatchThreads batches(
      [&](std::size_t number) {
        const std::int64_t now = ++begun;
        const std::lock_guard lock(mutex);
        most = std::max<std::int64_t>(most, now - given);
        return numbered(number);
      },
      {.batches = 200, .threads = 3, .ahead = 4});
  for (std::int64_t k = 0; k < 200; ++k) {
    {
      // Before next(), which makes room for another one.
      const std::lock_guard lock(mutex);
      ++given;
    }
    EXPECT_EQ(number_of(batches.next()), k);
  }
  EXPECT_LE(most, 4);
}

TEST(BatchThreads, ThrowAtThePlaceOfTheBatch) {
  for (const std::size_t threads : {1, 4}) {
    BatchThreads batches(
        [&](std::size_t number) {
          if (number == 5 || number == 6) throw std::runtime_error(std::to_string(number));
          return numbered(number);
        },
        {.batches = 100, .threads = threads, .ahead = 8});
    for (std::int64_t k = 0; k < 5; ++k) EXPECT_EQ(number_of(batches.next()), k);
    for (int again = 0; again < 3; ++again) {
      EXPECT_EQ(error_text<std::runtime_error>([&] { batches.next(); }), "5");
    }
  }
}

TEST(BatchThreads, EndBeforeAllBatchesAreMade) {
  std::atomic<int> made = 0;
  {
    BatchThreads batches(
        [&](std::size_t number) {
          ++made;
          return numbered(number);
        },
        {.batches = 1'000'000, .threads = 3, .ahead = 3});
    EXPECT_TRUE(batches.next());
  }
  EXPECT_LE(made, 4);
}

TEST(BatchThreads, OfNothingAreNone) {
  BatchThreads batches(numbered, {.batches = 0, .threads = 4, .ahead = 4});
  EXPECT_FALSE(batches.next());
}

TEST(BatchThreads, UseOneTorchThreadEachIfAsked) {
  const int before = at::get_num_threads();
  at::set_num_threads(2);
  for (const bool one : {false, true}) {
    BatchThreads batches(
        [](std::size_t) { return numbered(static_cast<std::size_t>(at::get_num_threads())); },
        {.batches = 4, .threads = 2, .ahead = 2, .one_torch_thread = one});
    while (const auto batch = batches.next()) EXPECT_EQ(number_of(batch), one ? 1 : 2);
  }
  EXPECT_EQ(at::get_num_threads(), 2);
  at::set_num_threads(before);
}

}  // namespace
}  // namespace lockstep::data

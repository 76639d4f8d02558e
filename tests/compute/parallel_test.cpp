#include "lockstep/compute/parallel.h"

#include <atomic>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace lockstep::compute {
namespace {

TEST(ForRanges, CoversEveryIndexOnce) {
  std::vector<std::atomic<int>> visits(100'003);
  for_ranges({.size = 100'003, .grain = 100}, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) ++visits[i];
  });
  for (const auto& count : visits) ASSERT_EQ(count, 1);
}

TEST(ForRanges, DoesNotSplitWhatIsSmall) {
  int calls = 0;
  for_ranges({.size = 50, .grain = 100}, [&](std::int64_t begin, std::int64_t end) {
    ++calls;
    EXPECT_EQ(begin, 0);
    EXPECT_EQ(end, 50);
  });
  EXPECT_EQ(calls, 1);
  for_ranges({.size = 0, .grain = 100}, [&](std::int64_t, std::int64_t) { ++calls; });
  EXPECT_EQ(calls, 1);
}

TEST(ForRanges, PassesAnExceptionOn) {
  EXPECT_THROW(for_ranges({.size = 1'000, .grain = 1},
                          [](std::int64_t, std::int64_t) { throw std::runtime_error("no"); }),
               std::runtime_error);
}

}  // namespace
}  // namespace lockstep::compute

#include "lockstep/compute/memory.h"

#include <limits>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/torch.h>

#include "lockstep/compute/switches.h"
#include "tests/support/slowdown.h"

namespace lockstep::compute {
namespace {

bool half_of_the_smallest_is_zero() {
  volatile float smallest = std::numeric_limits<float>::min();
  volatile float half = smallest * 0.5F;
  return half == 0.0F;
}

TEST(FlushDenormals, WhileItLives) {
  EXPECT_FALSE(half_of_the_smallest_is_zero());
#if defined(__SSE2__)
  {
    const FlushDenormals flush;
    EXPECT_TRUE(half_of_the_smallest_is_zero());
    {
      const FlushDenormals inner;
      EXPECT_TRUE(half_of_the_smallest_is_zero());
    }
    EXPECT_TRUE(half_of_the_smallest_is_zero());
  }
#endif
  EXPECT_FALSE(half_of_the_smallest_is_zero());
}

#if defined(__SSE2__)
TEST(FlushDenormals, InTheThreadsOfOperations) {
  const int threads = torch::get_num_threads();
  torch::set_num_threads(2);
  const auto tiny = torch::full({1 << 20}, std::numeric_limits<float>::min());
  EXPECT_GT((tiny * 0.5).min().item<float>(), 0.0F);  // this also starts the threads
  {
    const FlushDenormals flush;
    EXPECT_EQ((tiny * 0.5).max().item<float>(), 0.0F);
  }
  EXPECT_GT((tiny * 0.5).min().item<float>(), 0.0F);
  torch::set_num_threads(threads);
}
#endif

TEST(FlushDenormals, NotWhereItIsSwitchedOff) {
  const WithoutSpeedup without(Speedup::kDenormals);
  const FlushDenormals flush;
  EXPECT_FALSE(half_of_the_smallest_is_zero());
}

std::int64_t page_faults_of_big_tensors() {
  rusage before{};
  ::getrusage(RUSAGE_SELF, &before);
  for (int i = 0; i < 10; ++i) torch::full({4 << 20}, 1.0F);
  rusage after{};
  ::getrusage(RUSAGE_SELF, &after);
  return after.ru_minflt - before.ru_minflt;
}

TEST(KeepMemory, BigTensorsAreFaultedInOnce) {
  if (kHasAddressSanitizer || kHasThreadSanitizer) {
    GTEST_SKIP() << "sanitizers have an allocator of their own";
  }
  keep_memory();
  page_faults_of_big_tensors();
  EXPECT_LT(page_faults_of_big_tensors(), 1000);  // 40,960 if each is mapped again
}

}  // namespace
}  // namespace lockstep::compute

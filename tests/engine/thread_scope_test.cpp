#include "lockstep/engine/thread_scope.h"

#include <gtest/gtest.h>
#include <torch/utils.h>

namespace lockstep {
namespace {

TEST(ThreadScope, SetsTheThreadsAndSetsThemBack) {
  const int before = torch::get_num_threads();
  {
    const ThreadScope scope({.threads = before + 1});
    EXPECT_EQ(torch::get_num_threads(), before + 1);
  }
  EXPECT_EQ(torch::get_num_threads(), before);
}

}  // namespace
}  // namespace lockstep

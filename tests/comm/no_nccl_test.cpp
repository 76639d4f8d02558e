#include <gtest/gtest.h>

#include "lockstep/comm/nccl.h"

namespace lockstep::comm {
namespace {

TEST(NoNccl, ThereIsNoDataPlane) {
  EXPECT_EQ(nccl_planes(), nullptr);
}

}  // namespace
}  // namespace lockstep::comm

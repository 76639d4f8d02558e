// The copies of a GPU are tested in tests/gpu/copies_test.cpp; what uses copies is tested with
// LateCopies (tests/train/late_copies.h).
#include "lockstep/train/device_copies.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(DeviceCopies, AreNotNeededOnTheCpu) {
  EXPECT_EQ(make_device_copies(torch::kCPU, [] {}), nullptr);
}

}  // namespace
}  // namespace lockstep

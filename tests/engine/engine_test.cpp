#include "lockstep/engine/engine.h"

#include <gtest/gtest.h>
#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/engine/devices.h"

namespace lockstep {
namespace {

TEST(DeviceEngine, TakesTheCpuWhereThereIsNoGpu) {
  const DeviceEngine engine;
  EXPECT_EQ(engine.device().is_cuda(), gpu_count() > 0);
  EXPECT_EQ(engine.workers(), 1);
}

TEST(DeviceEngine, RefusesAGpuThatIsNotThere) {
  if (gpu_count() > 0) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_THROW(DeviceEngine({.device = torch::Device(torch::kCUDA, 0)}), ConfigError);
}

TEST(DeviceEngine, SetsTheThreadsItWasTold) {
  const int before = torch::get_num_threads();
  DeviceEngine({.threads = 1}).start();
  EXPECT_EQ(torch::get_num_threads(), 1);
  torch::set_num_threads(before);
  EXPECT_THROW(DeviceEngine({.threads = 0}), ConfigError);
}

}  // namespace
}  // namespace lockstep

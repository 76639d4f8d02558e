#include "lockstep/engine/engine.h"

#include <gtest/gtest.h>
#include <torch/utils.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/engine/devices.h"
#include "tests/support/environment_scope.h"
#include "tests/support/fake_gpus.h"

namespace lockstep {
namespace {

TEST(DeviceEngine, TakesTheCpuWhereThereIsNoGpu) {
  const DeviceEngine engine;
  EXPECT_EQ(engine.device().is_cuda(), gpu_count() > 0);
  EXPECT_EQ(engine.workers(), 1);
}

// Called in a process of its own.
int exit_code_of_rank_1() {
  const torch::Device expected =
      torch_has_cuda() ? torch::Device(torch::kCUDA, 1) : torch::Device(torch::kCPU);
  return DeviceEngine().device() == expected ? 0 : 1;
}

TEST(DeviceEngineDeathTest, TakesTheGpuOfItsLocalRankUnderALauncher) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const EnvironmentScope scope(with_two_gpus(LOCKSTEP_FAKE_DRIVER, variables_of_rank(1, 2)));
  EXPECT_EXIT(::_exit(exit_code_of_rank_1()), ::testing::ExitedWithCode(0), "");
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

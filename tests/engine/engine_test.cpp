#include "lockstep/engine/engine.h"

#include <cstdlib>

#include <gtest/gtest.h>
#include <torch/utils.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/engine/devices.h"
#include "tests/support/environment_scope.h"

namespace lockstep {
namespace {

TEST(DeviceEngine, TakesTheCpuWhereThereIsNoGpu) {
  const DeviceEngine engine;
  EXPECT_EQ(engine.device().is_cuda(), gpu_count() > 0);
  EXPECT_EQ(engine.workers(), 1);
}

// Called in a process of its own: the loader of programs reads LD_LIBRARY_PATH when a process
// begins.
int exit_code_of_rank_1() {
  const torch::Device expected =
      torch_has_cuda() ? torch::Device(torch::kCUDA, 1) : torch::Device(torch::kCPU);
  return DeviceEngine().device() == expected ? 0 : 1;
}

// The driver is a stand-in with two GPUs.
TEST(DeviceEngineDeathTest, TakesTheGpuOfItsLocalRankUnderALauncher) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  auto variables = variables_of_rank(1, 2);
  const char* const folders = std::getenv("LD_LIBRARY_PATH");
  variables["LD_LIBRARY_PATH"] =
      std::string(LOCKSTEP_FAKE_DRIVER) + (folders != nullptr ? std::string(":") + folders : "");
  variables["LOCKSTEP_FAKE_NVML"] = "A100,GPU-aa11,1;A100,GPU-bb22,1";
  variables["CUDA_VISIBLE_DEVICES"] = "0,1";
  const EnvironmentScope scope(variables);
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

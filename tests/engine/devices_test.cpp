#include "lockstep/engine/devices.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "tests/support/environment_scope.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

bool has_loaded(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  std::stringstream text;
  text << maps.rdbuf();
  return text.str().find(name) != std::string::npos;
}

std::string message_for(const torch::Device& device, const UsableGpus& gpus) {
  try {
    check_device(device, gpus);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

torch::Device cuda(int index) {
  return {torch::kCUDA, static_cast<torch::DeviceIndex>(index)};
}

TEST(Devices, KnowWhetherLibTorchHasCuda) {
  EXPECT_EQ(torch_has_cuda(), has_loaded("/libtorch_cuda.so"));
}

TEST(Devices, AreCountedWithoutStartingCuda) {
  const UsableGpus gpus = usable_gpus();
  EXPECT_EQ(gpus.count, gpu_count());
  EXPECT_EQ(gpus.count == 0, !gpus.why_none.empty());
  if (!torch_has_cuda()) {
    EXPECT_THAT(gpus.why_none, HasSubstr("without CUDA"));
  }
  // NVML may have loaded the driver's library, which starts nothing.
  const auto is_clean = [] { return !cuda_is_started(); };
  EXPECT_TRUE(is_clean());
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(is_clean() ? 0 : 1);
  int status = 1;
  ::waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(Devices, ThatAreNotThereAreNamed) {
  EXPECT_EQ(message_for(torch::kCPU, {.why_none = "no driver"}), "");
  EXPECT_THAT(message_for(cuda(1), {.why_none = "no driver"}),
              AllOf(HasSubstr("got 'cuda:1'"), HasSubstr("no GPU to use: no driver"),
                    HasSubstr("train on 'cpu'")));
  EXPECT_EQ(message_for(torch::kCUDA, {.count = 2}), "");
  EXPECT_EQ(message_for(cuda(1), {.count = 2}), "");
  const char* const variable = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string before = variable != nullptr ? variable : "";
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_THAT(message_for(cuda(2), {.count = 2}),
              HasSubstr("got 'cuda:2', but this process can use 2 GPUs; expected 'cuda:0' to "
                        "'cuda:1' or 'cpu'"));
  ::setenv("CUDA_VISIBLE_DEVICES", "3", 1);
  EXPECT_THAT(message_for(cuda(3), {.count = 1}),
              HasSubstr("can use 1 GPU (CUDA_VISIBLE_DEVICES=3); expected 'cuda:0' or 'cpu'"));
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  if (variable != nullptr) ::setenv("CUDA_VISIBLE_DEVICES", before.c_str(), 1);
}

TEST(Devices, AreChosenByTheLocalRank) {
  EXPECT_EQ(choose_device({.local_rank = 1, .gpus = 0}), torch::Device(torch::kCPU));
  EXPECT_EQ(choose_device({.local_rank = 1, .gpus = 2}), cuda(1));
  EXPECT_EQ(choose_device({.wanted = torch::kCUDA, .local_rank = 1, .gpus = 2}), cuda(1));
  EXPECT_EQ(choose_device({.local_rank = 5, .gpus = 2}), cuda(1)) << "more processes than GPUs";
  EXPECT_EQ(choose_device({.local_rank = 3, .gpus = 1}), cuda(0)) << "the launcher shows it one";
  EXPECT_EQ(choose_device({.wanted = cuda(0), .local_rank = 1, .gpus = 2}), cuda(0));
  EXPECT_EQ(choose_device({.wanted = torch::kCPU, .local_rank = 1, .gpus = 2}),
            torch::Device(torch::kCPU));
}

TEST(Devices, TheLocalRankIsTheLaunchers) {
  EXPECT_EQ(launched_local_rank(), 0);
  const EnvironmentScope launcher(variables_of_rank(1, 2));
  EXPECT_EQ(launched_local_rank(), 1);
}

TEST(Devices, OfTheCpuNeedNoStart) {
  use_device(torch::kCPU);
  EXPECT_FALSE(cuda_is_started());
}

TEST(Devices, HaveTheRandomNumbersOfTorch) {
  torch::manual_seed(17);
  const auto theirs = torch::rand({5});
  manual_seed(17);
  EXPECT_TRUE(torch::equal(torch::rand({5}), theirs));
}

TEST(Devices, OfForkedWorkersNeedAForkBeforeCuda) {
  check_forks_before_cuda(false);
  try {
    check_forks_before_cuda(true);
    FAIL() << "CUDA does not work in the workers";
  } catch (const WorkerError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("started CUDA already"), HasSubstr("torch::manual_seed()"),
                      HasSubstr("lockstep launch")));
  }
}

}  // namespace
}  // namespace lockstep

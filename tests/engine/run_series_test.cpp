#include "lockstep/engine/run_series.h"

#include <gtest/gtest.h>

#include "lockstep/engine/distributed.h"
#include "tests/support/environment_scope.h"

namespace lockstep {
namespace {

TEST(RunSeries, ForkedWorkersCannotUseGpusAfterARunOnAGpu) {
  const PlannedRun forked{.device = torch::kCUDA, .forks = true};
  EXPECT_EQ(refused_run({forked, forked}), 1U);
  const PlannedRun alone{.device = torch::Device(torch::kCUDA, 1), .forks = false};
  EXPECT_EQ(refused_run({alone, alone, forked}), 2U);
}

TEST(RunSeries, OthersCanBeDone) {
  const PlannedRun forked{.device = torch::kCUDA, .forks = true};
  const PlannedRun alone{.device = torch::kCUDA, .forks = false};
  const PlannedRun forked_on_cpu{.device = torch::kCPU, .forks = true};
  EXPECT_EQ(refused_run({}), std::nullopt);
  EXPECT_EQ(refused_run({forked}), std::nullopt);
  EXPECT_EQ(refused_run({forked, alone, forked_on_cpu}), std::nullopt);
  EXPECT_EQ(refused_run({forked_on_cpu, forked_on_cpu, forked}), std::nullopt);
}

TEST(RunSeries, AnEngineSaysWhetherItForks) {
  const auto forks = [](const DistributedDataParallelOptions& options) {
    return planned_run(DistributedDataParallelEngine(options)).forks;
  };
  EXPECT_FALSE(planned_run(DeviceEngine()).forks);
  EXPECT_FALSE(forks({.workers = 1, .device = torch::kCPU}));
  EXPECT_TRUE(forks({.workers = 2, .device = torch::kCPU}));
  EXPECT_FALSE(forks({.workers = 1, .port = 4000, .world_size = 2, .device = torch::kCPU}))
      << "the other worker is on another host";
  const EnvironmentScope launcher(variables_of_rank(0, 2));
  EXPECT_FALSE(forks({.device = torch::kCPU})) << "the launcher has started the workers";
}

}  // namespace
}  // namespace lockstep

#include "lockstep/process/affinity.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"

namespace lockstep::process {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Affinity, AvailableCoresAscend) {
  const std::vector<int> cores = available_cores();
  ASSERT_FALSE(cores.empty());
  EXPECT_GE(cores.front(), 0);
  EXPECT_EQ(std::adjacent_find(cores.begin(), cores.end(), std::greater_equal<>()), cores.end());
  EXPECT_GE(usable_cores(), 1);
  EXPECT_LE(usable_cores(), static_cast<int>(cores.size()));
}

TEST(Affinity, WorkersShareNoCore) {
  const std::vector<int> available = {0, 2, 3, 5, 8, 9, 11};
  EXPECT_THAT(cores_of(available, {.local_rank = 0, .workers = 3, .threads = 2}),
              ElementsAre(0, 2));
  EXPECT_THAT(cores_of(available, {.local_rank = 1, .workers = 3, .threads = 2}),
              ElementsAre(3, 5));
  EXPECT_THAT(cores_of(available, {.local_rank = 2, .workers = 3, .threads = 2}),
              ElementsAre(8, 9));
}

TEST(Affinity, NoWorkerIsPinnedIfNotAllFit) {
  for (const int local_rank : {0, 1}) {
    EXPECT_THAT(cores_of({0, 1, 2}, {.local_rank = local_rank, .workers = 2, .threads = 2}),
                IsEmpty());
  }
  EXPECT_THAT(cores_of({}, {}), IsEmpty());
  EXPECT_THAT(cores_of({0}, {.local_rank = 0, .workers = 1 << 20, .threads = 1 << 20}), IsEmpty());
}

TEST(Affinity, AWorkerThatCannotBeIsNamed) {
  for (const WorkerCores& worker : {WorkerCores{.local_rank = 2, .workers = 2, .threads = 7},
                                    WorkerCores{.local_rank = -1, .workers = 2, .threads = 7},
                                    WorkerCores{.local_rank = 0, .workers = 2, .threads = 0}}) {
    try {
      cores_of({0, 1, 2, 3}, worker);
      ADD_FAILURE() << "nothing was thrown for local rank " << worker.local_rank;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("of 2 workers"));
      EXPECT_THAT(error.what(), HasSubstr("local rank " + std::to_string(worker.local_rank)));
    }
  }
}

TEST(PinnedScope, HoldsTheThreadAndItsThreadsAndRestores) {
  const std::vector<int> before = available_cores();
  {
    const PinnedScope scope({before.back()});
    EXPECT_TRUE(scope.pinned());
    EXPECT_THAT(available_cores(), ElementsAre(before.back()));
    std::vector<int> inherited;
    std::thread([&] { inherited = available_cores(); }).join();
    EXPECT_THAT(inherited, ElementsAre(before.back()));
  }
  EXPECT_EQ(available_cores(), before);
}

TEST(PinnedScope, NestsLikeItsScopes) {
  const std::vector<int> before = available_cores();
  if (before.size() < 2) GTEST_SKIP() << "this machine has one core";
  {
    const PinnedScope outer({before[0], before[1]});
    {
      const PinnedScope inner({before[1]});
      EXPECT_THAT(available_cores(), ElementsAre(before[1]));
    }
    EXPECT_THAT(available_cores(), ElementsAre(before[0], before[1]));
  }
  EXPECT_EQ(available_cores(), before);
}

TEST(PinnedScope, WithoutCoresOrWithImpossibleOnesDoesNothing) {
  const std::vector<int> before = available_cores();
  for (const std::vector<int>& cores :
       {std::vector<int>{}, {-1}, {100'000}, {std::numeric_limits<int>::max()}}) {
    const PinnedScope scope(cores);
    EXPECT_FALSE(scope.pinned());
    EXPECT_EQ(available_cores(), before);
  }
  EXPECT_EQ(available_cores(), before);
}

// Imitates a system's control groups in a temporary folder.
class ControlGroups {
 public:
  explicit ControlGroups(const std::string& membership) { write("membership", membership); }

  void write(const std::string& name, const std::string& text) {
    make_directories((folder_ / name).parent_path());
    write_file_atomically(folder_ / name, text);
  }

  std::optional<double> quota() const {
    return cpu_quota({.membership = folder_ / "membership", .root = folder_.path()});
  }

 private:
  TemporaryDirectory folder_;
};

TEST(CpuQuota, OfVersion2) {
  ControlGroups groups("0::/jobs/mine\n");
  EXPECT_EQ(groups.quota(), std::nullopt);
  groups.write("jobs/mine/cpu.max", "max 100000\n");
  EXPECT_EQ(groups.quota(), std::nullopt);
  groups.write("jobs/mine/cpu.max", "250000 100000\n");
  EXPECT_EQ(groups.quota(), 2.5);
}

TEST(CpuQuota, TheTightestParentBinds) {
  ControlGroups groups("0::/jobs/mine\n");
  groups.write("jobs/mine/cpu.max", "400000 100000\n");
  groups.write("jobs/cpu.max", "150000 100000\n");
  groups.write("cpu.max", "max 100000\n");
  EXPECT_EQ(groups.quota(), 1.5);
}

TEST(CpuQuota, OfVersion1) {
  for (const std::string controllers : {"cpu", "cpu,cpuacct", "cpuacct,cpu"}) {
    ControlGroups groups("4:memory:/mine\n2:" + controllers + ":/mine\n0::/\n");
    groups.write("memory/mine/cpu.cfs_quota_us", "1\n");
    groups.write(controllers + "/mine/cpu.cfs_period_us", "50000\n");
    groups.write(controllers + "/mine/cpu.cfs_quota_us", "-1\n");
    EXPECT_EQ(groups.quota(), std::nullopt) << controllers;
    groups.write(controllers + "/mine/cpu.cfs_quota_us", "150000\n");
    EXPECT_EQ(groups.quota(), 3) << controllers;
  }
}

TEST(CpuQuota, OfAContainerThatSeesTheHostsPath) {
  ControlGroups groups("0::/docker/0123\n");
  groups.write("cpu.max", "200000 100000\n");
  EXPECT_EQ(groups.quota(), 2);
}

TEST(CpuQuota, WhatCannotBeReadIsNoLimit) {
  EXPECT_EQ(cpu_quota({.membership = "/nowhere", .root = "/nowhere"}), std::nullopt);
  for (const std::string membership : {"", "\n", "nonsense\n", "0:\n", "0::\n", "::::\n", ":::"}) {
    ControlGroups groups(membership);
    EXPECT_EQ(groups.quota(), std::nullopt) << membership;
  }
  for (const std::string text : {"", "x y", "100000", "0 100000", "100000 0", "-1 -1"}) {
    ControlGroups groups("0::/\n");
    groups.write("cpu.max", text);
    EXPECT_EQ(groups.quota(), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace lockstep::process

#include "tests/chaos/chaos_report.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::chaos {
namespace {

TEST(Percentile, IsOneOfTheValues) {
  EXPECT_EQ(percentile({}, 50), 0);
  EXPECT_EQ(percentile({3}, 1), 3);
  EXPECT_EQ(percentile({3}, 99), 3);
  EXPECT_EQ(percentile({4, 1, 3, 2}, 50), 2);
  EXPECT_EQ(percentile({5, 1, 4, 2, 3}, 50), 3);
  std::vector<double> hundred;
  for (int i = 100; i > 0; --i) hundred.push_back(i);
  EXPECT_EQ(percentile(hundred, 50), 50);
  EXPECT_EQ(percentile(hundred, 99), 99);
  EXPECT_EQ(percentile(hundred, 100), 100);
  EXPECT_EQ(percentile(hundred, 0), 1);
}

TEST(Report, CountsFaultsAndNotRunsThatWereOverBefore) {
  ChaosReport report;
  report.add({.group = "shm worker kill",
              .injected = true,
              .recoveries = 2,
              .detection = {0.1, 0.2},
              .recovery = {0.5, 0.75}});
  report.add({.group = "shm caller kill", .injected = true, .resumed = true, .detection = {0.3}});
  report.add({.group = "shm caller kill", .injected = false});
  report.add({.group = "shm caller kill", .injected = true, .failure = "other weights"});
  report.add({.group = "shm caller kill", .injected = false, .failure = "ended before the fault"});
  EXPECT_EQ(report.faults(), 3);
  EXPECT_EQ(report.missed(), 1);
  EXPECT_EQ(report.failures(), 2);
  EXPECT_EQ(report.failures_without_fault(), 1);
  EXPECT_EQ(report.last_line(),
            "chaos: 3 faults, 2 failures, 2 recoveries, 1 resumed; detection p50 0.20 s, "
            "p99 0.30 s; recovery p50 0.50 s, p99 0.75 s");
  EXPECT_THAT(report.table(), testing::HasSubstr("shm worker kill"));
}

// If a kind of fault never comes in time, it is not tested at all.
TEST(Report, NamesWhatWasNeverInjected) {
  ChaosReport report;
  const auto add = [&](const char* fault, const char* moment, bool injected) {
    report.add({.name = fmt::format("gan shm worker {} {}", fault, moment),
                .group = fmt::format("shm worker {}", fault),
                .injected = injected});
  };
  for (int i = 0; i < ChaosReport::kEnough; ++i) add("exception", "saving", false);
  add("kill", "saving", true);
  for (int i = 1; i < ChaosReport::kEnough; ++i) add("segv", "end", false);
  EXPECT_THAT(report.never_injected(), testing::ElementsAre("fault exception"));
}

TEST(Report, ResultsCanBePassedOn) {
  const FaultResult result{.seed = 0xffffffffffffffffULL,
                           .name = "mnist shm worker kill end",
                           .group = "shm worker kill",
                           .injected = true,
                           .outcome = "continued",
                           .recoveries = 1,
                           .resumed = true,
                           .detection = {0.1},
                           .recovery = {0.2},
                           .seconds = 3,
                           .failure = "a byte \xff"};
  const FaultResult same = from_json(to_json(result));
  EXPECT_EQ(same.seed, result.seed);
  EXPECT_EQ(same.name, result.name);
  EXPECT_EQ(same.group, result.group);
  EXPECT_TRUE(same.injected && same.resumed);
  EXPECT_EQ(same.outcome, result.outcome);
  EXPECT_EQ(same.recoveries, 1);
  EXPECT_EQ(same.detection, result.detection);
  EXPECT_EQ(same.recovery, result.recovery);
  EXPECT_EQ(same.seconds, 3);
  EXPECT_THAT(same.failure, testing::StartsWith("a byte "));
}

}  // namespace
}  // namespace lockstep::chaos

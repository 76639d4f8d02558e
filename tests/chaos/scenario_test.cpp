#include "tests/chaos/scenario.h"

#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::chaos {
namespace {

TEST(DeriveSeed, DiffersForEveryFaultAndIsTheSameInEveryRun) {
  std::set<std::uint64_t> seeds;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    for (std::uint64_t index = 0; index < 1000; ++index) seeds.insert(derive_seed(seed, index));
  }
  EXPECT_EQ(seeds.size(), 10'000u);
  // The first outputs of SplitMix64 with the seed 0, as its authors give them.
  EXPECT_EQ(derive_seed(0, 0), 0xe220a8397b1dcdafULL);
  EXPECT_EQ(derive_seed(0, 1), 0x6e789e6aa1b965f4ULL);
}

TEST(RandomSource, StaysBetweenItsLimits) {
  RandomSource random(1);
  std::set<std::size_t> found;
  for (int i = 0; i < 1000; ++i) {
    found.insert(random.below(3));
    const double number = random.between(2, 5);
    ASSERT_GE(number, 2);
    ASSERT_LT(number, 5);
  }
  EXPECT_THAT(found, testing::ElementsAre(0, 1, 2));
}

TEST(Scenarios, ASeedAlwaysGivesTheSameOne) {
  const auto all = scenarios({});
  for (std::uint64_t index = 0; index < 100; ++index) {
    const std::uint64_t seed = derive_seed(7, index);
    RandomSource first(seed), second(seed);
    EXPECT_EQ(choose(all, seed, first).name(), choose(all, seed, second).name());
    EXPECT_EQ(first.below(1000), second.below(1000));
  }
}

TEST(Scenarios, EveryRowAndEveryTransportIsChosen) {
  const auto all = scenarios({});
  std::set<std::string> groups, chosen;
  for (const Scenario& scenario : all) groups.insert(scenario.group());
  std::map<Transport, int> transports;
  for (std::uint64_t index = 0; index < 1500; ++index) {
    RandomSource random(derive_seed(1, index));
    const Scenario scenario = choose(all, 0, random);
    chosen.insert(scenario.group());
    ++transports[scenario.transport];
  }
  EXPECT_EQ(chosen, groups);
  EXPECT_EQ(transports.size(), 4u);
  for (const auto& [transport, count] : transports) EXPECT_GT(count, 300) << name_of(transport);
}

TEST(Scenarios, OnlyThoseThatFitEveryKindOfWord) {
  const auto some = scenarios({.only = "shm,gloo,kill"});
  ASSERT_FALSE(some.empty());
  std::set<Transport> transports;
  for (const Scenario& scenario : some) {
    EXPECT_EQ(scenario.fault, FaultKind::kKill) << scenario.name();
    transports.insert(scenario.transport);
  }
  EXPECT_THAT(transports, testing::ElementsAre(Transport::kShm, Transport::kGloo));
}

TEST(Scenarios, RefusesUnknownWordsAndWordsThatExcludeEachOther) {
  EXPECT_THROW(scenarios({.only = "kil"}), ConfigError);
  EXPECT_THROW(scenarios({.only = "shm,reaper"}), ConfigError);
  try {
    scenarios({.only = "kil"});
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("'kill'"));
  }
}

TEST(Scenarios, WhatAMachineDoesNotAllowIsCounted) {
  const ScenarioOptions limited{.namespaces = false, .mounts = false};
  const auto possible = scenarios(limited);
  for (const Scenario& scenario : possible) {
    EXPECT_NE(scenario.transport, Transport::kNodes);
    EXPECT_NE(scenario.fault, FaultKind::kFullDisk);
  }
  EXPECT_EQ(possible.size() + count_impossible(limited), scenarios({}).size());
}

TEST(Scenarios, WithoutRestartsALostWorkerMayEndTheRun) {
  for (const Scenario& scenario : scenarios({.restarts = false})) {
    EXPECT_NE(scenario.promise, Promise::kContinues) << scenario.name();
    EXPECT_NE(scenario.victim, Victim::kTemplate) << scenario.name();
    EXPECT_NE(scenario.moment, Moment::kRecovery) << scenario.name();
  }
}

}  // namespace
}  // namespace lockstep::chaos

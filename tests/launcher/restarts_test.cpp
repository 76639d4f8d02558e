#include "lockstep/launcher/restarts.h"

#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::launcher {
namespace {

using namespace std::chrono_literals;
using process::FailureKind;
using process::FailureNote;
using testing::HasSubstr;

const auto kStart = std::chrono::steady_clock::time_point(100s);

RankEnd exited(int rank, int code, std::chrono::milliseconds after) {
  return {.rank = rank, .end = {.exit_code = code}, .time = kStart + after, .last_lines = {}};
}

RankEnd killed(int rank, int signal, std::chrono::milliseconds after) {
  return {.rank = rank, .end = {.signal = signal}, .time = kStart + after, .last_lines = {}};
}

RankEnd told_to_stop(int rank) {
  return {.rank = rank,
          .end = {.signal = SIGTERM},
          .stopped = true,
          .time = kStart + 1s,
          .last_lines = {}};
}

FailureNote note(int rank, FailureKind kind, std::chrono::milliseconds after) {
  return {.attempt = 0,
          .rank = rank,
          .kind = kind,
          .epoch = 1,
          .batch = 3,
          .reason = "boom",
          .time = kStart + after};
}

AttemptFailure failure(FailureKind kind, std::int64_t batch, int shell_code = 1) {
  return {
      .rank = 1, .kind = kind, .epoch = 1, .batch = batch, .shell_code = shell_code, .how = "boom"};
}

TEST(FindCause, NothingIfAllEndedWell) {
  const ProgramsEnd ended{.ranks = {exited(0, 0, 1ms), exited(1, 0, 2ms)}};
  EXPECT_FALSE(find_cause(0, ended, {note(0, FailureKind::kError, 1ms)}));
}

TEST(FindCause, ARankThatLostAnotherOneIsNotBlamed) {
  // Rank 0 gave up because of rank 1, and its end was handled first.
  const ProgramsEnd ended{.ranks = {exited(0, 1, 5ms), killed(1, SIGKILL, 6ms)},
                          .first_failure = 0};
  const auto cause = find_cause(0, ended, {});
  ASSERT_TRUE(cause);
  EXPECT_EQ(cause->rank, 1);
  EXPECT_EQ(cause->kind, FailureKind::kLost);
  EXPECT_EQ(cause->shell_code, 137);
  EXPECT_EQ(cause->blame, Blame::kCertain);
  EXPECT_EQ(to_string(*cause), "rank 1: killed by signal 9 (Killed)");
  // Exit code 3 means that another process failed.
  const ProgramsEnd codes{.ranks = {exited(0, 3, 1ms), exited(1, 7, 2ms)}, .first_failure = 0};
  EXPECT_EQ(find_cause(0, codes, {})->rank, 1);
}

TEST(FindCause, WhatARankSaysOfItselfCounts) {
  const ProgramsEnd ended{.ranks = {exited(0, 1, 5ms), exited(1, 1, 6ms)}, .first_failure = 0};
  const auto cause = find_cause(0, ended, {note(1, FailureKind::kError, 1ms)});
  ASSERT_TRUE(cause);
  EXPECT_EQ(to_string(*cause), "rank 1 (epoch 1, batch 3): boom");
  EXPECT_EQ(cause->kind, FailureKind::kError);
  EXPECT_EQ(cause->shell_code, 1);
  // A note of an earlier attempt says nothing about this one.
  EXPECT_EQ(find_cause(1, ended, {note(1, FailureKind::kError, 1ms)})->kind, FailureKind::kLost);
}

TEST(FindCause, TheEarlierOfADeathAndANoteCounts) {
  const ProgramsEnd ended{.ranks = {exited(0, 1, 9ms), killed(1, SIGSEGV, 5ms)},
                          .first_failure = 1};
  EXPECT_EQ(find_cause(0, ended, {note(0, FailureKind::kError, 7ms)})->rank, 1);
  EXPECT_EQ(find_cause(0, ended, {note(0, FailureKind::kError, 2ms)})->rank, 0);
}

// The program caught the error of a wrong option and went on, and was killed later.
TEST(FindCause, AWrongOptionThatDidNotEndTheRankIsNotTheCause) {
  const std::vector<process::FailureNote> noted = {note(1, FailureKind::kConfig, 1ms)};
  const ProgramsEnd later{.ranks = {told_to_stop(0), killed(1, SIGKILL, 9ms)}, .first_failure = 1};
  EXPECT_EQ(find_cause(0, later, noted)->kind, FailureKind::kLost);
  const ProgramsEnd at_once{.ranks = {told_to_stop(0), exited(1, 1, 2ms)}, .first_failure = 1};
  EXPECT_EQ(find_cause(0, at_once, noted)->kind, FailureKind::kConfig);
}

TEST(FindCause, AStoppedRankIsTheCauseAndNotTheOneThatGaveUp) {
  RankEnd suspended = told_to_stop(0);
  suspended.suspended = true;
  const ProgramsEnd ended{.ranks = {suspended, exited(1, 1, 5ms)}, .first_failure = 1};
  const auto cause = find_cause(0, ended, {});
  ASSERT_TRUE(cause);
  EXPECT_EQ(cause->rank, 0);
  EXPECT_EQ(cause->kind, FailureKind::kHang);
  EXPECT_EQ(cause->shell_code, 1);
  // The rank that gave up is on another node.
  EXPECT_EQ(find_cause(0, {.ranks = {suspended}}, {})->kind, FailureKind::kHang);
}

TEST(FindCause, NoRankOfThisHostIfItsRanksWereOnlyToldToStop) {
  EXPECT_FALSE(find_cause(0, {.ranks = {told_to_stop(0), told_to_stop(1)}}, {}));
}

TEST(DecideRestart, WaitsLongerEachTime) {
  std::vector<AttemptFailure> failures;
  std::vector<std::int64_t> waits;
  for (int i = 0; i < 9; ++i) {
    failures.push_back(failure(FailureKind::kLost, -1));
    const RestartDecision decision = decide_restart(failures, 9);
    ASSERT_TRUE(decision.restart);
    waits.push_back(decision.wait.count());
  }
  EXPECT_THAT(waits, testing::ElementsAre(0, 100, 200, 400, 800, 1600, 3200, 5000, 5000));
  failures.push_back(failure(FailureKind::kLost, -1));
  EXPECT_FALSE(decide_restart(failures, 9).restart);
  EXPECT_THAT(decide_restart(failures, 9).why_not, HasSubstr("--max-restarts 9"));
}

TEST(DecideRestart, WhatWillFailAgainIsNotTried) {
  EXPECT_THAT(decide_restart({failure(FailureKind::kConfig, 3)}, 9).why_not,
              HasSubstr("wrong option"));
  for (const int code : {2, 126, 127}) {
    EXPECT_THAT(decide_restart({failure(FailureKind::kLost, -1, code)}, 9).why_not,
                HasSubstr(std::to_string(code)));
  }
  EXPECT_TRUE(decide_restart({failure(FailureKind::kLost, -1, 1)}, 9).restart);
  EXPECT_TRUE(decide_restart({failure(FailureKind::kHang, 3)}, 9).restart);
  // The rank has said what it was, so its exit code does not count.
  EXPECT_TRUE(decide_restart({failure(FailureKind::kError, 3, 2)}, 9).restart);
}

TEST(DecideRestart, TheSameFailureAtTheSameBatchTwiceEndsTheRun) {
  for (const FailureKind kind : {FailureKind::kError, FailureKind::kOutOfMemory}) {
    EXPECT_TRUE(decide_restart({failure(kind, 3)}, 9).restart);
    EXPECT_TRUE(decide_restart({failure(kind, 3), failure(kind, 4)}, 9).restart);
    // A death between them changes nothing.
    const auto decision =
        decide_restart({failure(kind, 3), failure(FailureKind::kLost, -1), failure(kind, 3)}, 9);
    EXPECT_FALSE(decision.restart);
    EXPECT_THAT(decision.why_not, HasSubstr("twice"));
  }
  EXPECT_TRUE(
      decide_restart({failure(FailureKind::kError, 3), failure(FailureKind::kOutOfMemory, 3)}, 9)
          .restart);
  EXPECT_TRUE(
      decide_restart({failure(FailureKind::kLost, 3), failure(FailureKind::kLost, 3)}, 9).restart);
}

// All other ranks have ended well, and the launcher has ended this one.
TEST(Restarts, ARankThatWasLeftStoppedIsAHang) {
  ProgramsEnd ended;
  ended.ranks.push_back({.rank = 0});
  ended.ranks.push_back(
      {.rank = 1, .end = {.signal = SIGKILL}, .stopped = true, .suspended = true});
  const auto cause = find_cause(0, ended, {});
  ASSERT_TRUE(cause);
  EXPECT_EQ(cause->rank, 1);
  EXPECT_EQ(cause->kind, process::FailureKind::kHang);
  EXPECT_EQ(cause->shell_code, 1);
  EXPECT_TRUE(decide_restart({*cause}, 1).restart);
}

}  // namespace
}  // namespace lockstep::launcher

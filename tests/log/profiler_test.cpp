#include "lockstep/log/profiler.h"

#include <algorithm>
#include <iterator>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/file.h"

namespace lockstep {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;

void spend(Profiler& profiler, Activity activity, int milliseconds) {
  const Profiler::TimedScope scope(profiler, activity);
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  while (std::chrono::steady_clock::now() < end) {
  }
}

// The numbers of a row: seconds, share, microseconds per batch, and those of each rank.
std::vector<double> row_of(const std::string& name, const std::vector<std::string>& profiles) {
  std::istringstream table(profile_table(profiles));
  std::string line;
  while (std::getline(table, line)) {
    if (!line.starts_with(name + ' ')) continue;
    std::ranges::replace(line, '%', ' ');
    std::istringstream numbers(line.substr(name.size()));
    return {std::istream_iterator<double>(numbers), {}};
  }
  return {};
}

// A busy machine may need more time than expected, but never less.
TEST(Profiler, TellsPhasesApart) {
  Profiler profiler(true);
  spend(profiler, Activity::kBackward, 5);
  profiler.count_batch();
  const auto backward = row_of("backward", {profiler.serialize()});
  ASSERT_EQ(backward.size(), 3U);
  EXPECT_GE(backward[0], 0.005);
  EXPECT_GE(backward[2], 5000);
  EXPECT_THAT(row_of("data", {profiler.serialize()}), ElementsAre(0, 0, 0));
  EXPECT_EQ(row_of("together", {profiler.serialize()})[0], backward[0]);
}

TEST(Profiler, TellsWhatIsInNoPhase) {
  Profiler profiler(true);
  {
    const Profiler::Pass pass(profiler);
    spend(profiler, Activity::kData, 5);
    Profiler off(false);
    spend(off, Activity::kData, 10);
  }
  const auto seconds = [&](const char* name) { return row_of(name, {profiler.serialize()}).at(0); };
  EXPECT_GE(seconds("other"), 0.010);
  EXPECT_NEAR(seconds("together"), seconds("data") + seconds("other"), 0.0021);
}

TEST(Profiler, ShowsEveryRankAndTheirMean) {
  Profiler first(true);
  Profiler second(true);
  spend(first, Activity::kForward, 10);
  spend(second, Activity::kForward, 20);
  spend(first, Activity::kWait, 10);
  for (Profiler* const profiler : {&first, &second}) {
    profiler->count_batch();
    profiler->count_batch();
  }
  const std::vector<std::string> both{first.serialize(), second.serialize()};
  EXPECT_THAT(profile_table(both), ContainsRegex("rank 0 +rank 1"));
  const auto forward = row_of("forward", both);
  ASSERT_EQ(forward.size(), 5U);
  EXPECT_GE(forward[3], 5000);
  EXPECT_GE(forward[4], 10000);
  EXPECT_NEAR(forward[2], (forward[3] + forward[4]) / 2, 0.2);
  const auto wait = row_of("wait", both);
  EXPECT_GE(wait[3], 5000);
  EXPECT_EQ(wait[4], 0);
  EXPECT_NEAR(forward[1] + wait[1], 100, 0.2);
}

TEST(Profiler, WritesATraceThatChromeReads) {
  TemporaryDirectory folder;
  Profiler profiler(true);
  spend(profiler, Activity::kForward, 1);
  spend(profiler, Activity::kReduce, 1);
  write_chrome_trace(folder / "t.json",
                     std::vector<std::string>{profiler.serialize(), profiler.serialize()});
  const auto events = nlohmann::json::parse(read_file(folder / "t.json")).at("traceEvents");
  ASSERT_EQ(events.size(), 6U);
  EXPECT_EQ(events[0]["args"]["name"], "rank 0");
  EXPECT_EQ(events[1]["name"], "forward");
  EXPECT_EQ(events[1]["ph"], "X");
  EXPECT_EQ(events[1]["ts"], 0.0);
  EXPECT_GE(events[2]["ts"], 1000.0);
  EXPECT_EQ(events[2]["name"], "reduce");
  EXPECT_EQ(events[5]["pid"], 1);
}

TEST(Profiler, RemembersNothingWhenOff) {
  Profiler profiler(false);
  spend(profiler, Activity::kForward, 1);
  EXPECT_EQ(row_of("together", {profiler.serialize()})[0], 0);
  const Profiler::TimedScope nothing(nullptr, Activity::kForward);  // no profiler at all
}

}  // namespace
}  // namespace lockstep

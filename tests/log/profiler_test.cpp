#include "lockstep/log/profiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/file.h"

namespace lockstep {
namespace {

using ::testing::ContainsRegex;

void spend(Profiler& profiler, Phase phase, int milliseconds) {
  const Profiler::Scope scope(profiler, phase);
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  while (std::chrono::steady_clock::now() < end) {
  }
}

std::string table_of(const std::vector<std::string>& profiles) {
  return profile_table(profiles);
}

TEST(Profiler, TellsPhasesApart) {
  Profiler profiler(true);
  spend(profiler, Phase::kBackward, 5);
  spend(profiler, Phase::kData, 0);
  profiler.count_batch();
  EXPECT_THAT(table_of({profiler.serialize()}), ContainsRegex("backward +0\\.00[5-9]"));
  EXPECT_THAT(table_of({profiler.serialize()}), ContainsRegex("data +0\\.000"));
}

TEST(Profiler, TellsWhatIsInNoPhase) {
  Profiler profiler(true);
  {
    const Profiler::Pass pass(profiler);
    spend(profiler, Phase::kData, 5);
    spend(Profiler::none(), Phase::kData, 10);
  }
  profiler.count_batch();
  EXPECT_THAT(table_of({profiler.serialize()}), ContainsRegex("other +0\\.01[0-4]"));
  EXPECT_THAT(table_of({profiler.serialize()}), ContainsRegex("together +0\\.01[5-9]"));
}

TEST(Profiler, ShowsEveryRankAndTheirMean) {
  Profiler first(true);
  Profiler second(true);
  spend(first, Phase::kForward, 10);
  spend(second, Phase::kForward, 20);
  spend(first, Phase::kWait, 10);
  for (Profiler* const profiler : {&first, &second}) {
    profiler->count_batch();
    profiler->count_batch();
  }
  const std::string text = table_of({first.serialize(), second.serialize()});
  EXPECT_THAT(text, ContainsRegex("rank 0 +rank 1"));
  EXPECT_THAT(text, ContainsRegex("forward +0\\.01[5-9] .* 7[0-9]{3}\\.[0-9] +5[0-9]{3}\\.[0-9] "
                                  "+10[0-9]{3}\\.[0-9]"));
  EXPECT_THAT(text, ContainsRegex("wait +0\\.00[5-9] .* 5[0-9]{3}\\.[0-9] +0\\.0"));
}

TEST(Profiler, WritesATraceThatChromeReads) {
  TemporaryDirectory folder;
  Profiler profiler(true);
  spend(profiler, Phase::kForward, 1);
  spend(profiler, Phase::kReduce, 1);
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
  spend(profiler, Phase::kForward, 1);
  spend(Profiler::none(), Phase::kForward, 1);
  EXPECT_THAT(table_of({profiler.serialize()}), ContainsRegex("together +0\\.000"));
  EXPECT_THAT(table_of({Profiler::none().serialize()}), ContainsRegex("together +0\\.000"));
}

}  // namespace
}  // namespace lockstep

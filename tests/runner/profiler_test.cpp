#include "lockstep/runner/profiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/file.h"

namespace lockstep {
namespace {

TEST(Profiler, TellsPartsApart) {
  Profiler profiler(true);
  {
    Profiler::Scope scope(profiler, Part::kBackward);
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(5);
    while (std::chrono::steady_clock::now() < end) {
    }
  }
  { Profiler::Scope scope(profiler, Part::kData); }
  profiler.count_batch();
  EXPECT_THAT(profiler.table(), testing::ContainsRegex("backward +0\\.00[5-9]"));
  EXPECT_THAT(profiler.table(), testing::ContainsRegex("data +0\\.000"));
}

TEST(Profiler, WritesATraceThatChromeReads) {
  TemporaryDirectory folder;
  Profiler profiler(true);
  { Profiler::Scope scope(profiler, Part::kForward); }
  profiler.write_chrome_trace(folder / "t.json");
  const auto trace = nlohmann::json::parse(read_file(folder / "t.json"));
  ASSERT_EQ(trace["traceEvents"].size(), 1u);
  EXPECT_EQ(trace["traceEvents"][0]["name"], "forward");
  EXPECT_EQ(trace["traceEvents"][0]["ph"], "X");
}

TEST(Profiler, RemembersNothingWhenOff) {
  Profiler profiler(false);
  { Profiler::Scope scope(profiler, Part::kForward); }
  EXPECT_THAT(profiler.table(), testing::ContainsRegex("together +0\\.000"));
}

}  // namespace
}  // namespace lockstep

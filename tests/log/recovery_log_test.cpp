#include "lockstep/log/recovery_log.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

Recovery recovery() {
  return {.time = std::chrono::system_clock::time_point(std::chrono::milliseconds(1234567890123)),
          .rank = 1,
          .kind = "lost",
          .reason = "its process was killed by signal 9 (Killed)",
          .epoch = 2,
          .batch = 7,
          .repeated_batches = 3,
          .seconds = 0.125,
          .workers = 2};
}

TEST(RecoveryLog, OneLineOfJsonPerRecovery) {
  const TemporaryDirectory folder;
  const auto path = folder / "recoveries.jsonl";
  append_recovery(path, recovery());
  Recovery unknown = recovery();
  unknown.repeated_batches = std::nullopt;
  unknown.reason = "not \xff UTF-8\nin two lines";
  append_recovery(path, unknown);

  const std::string text = read_file(path);
  EXPECT_EQ(std::ranges::count(text, '\n'), 2);
  const auto first = nlohmann::json::parse(text.substr(0, text.find('\n')));
  EXPECT_EQ(first["time"], "2009-02-13T23:31:30.123Z");
  EXPECT_EQ(first["rank"], 1);
  EXPECT_EQ(first["kind"], "lost");
  EXPECT_EQ(first["epoch"], 2);
  EXPECT_EQ(first["batch"], 7);
  EXPECT_EQ(first["repeated_batches"], 3);
  EXPECT_EQ(first["seconds"], 0.125);
  EXPECT_EQ(first["workers"], 2);
  const auto second = nlohmann::json::parse(text.substr(text.find('\n') + 1));
  EXPECT_TRUE(second["repeated_batches"].is_null());
}

TEST(RecoveryLog, AFolderThatIsMissingIsNamed) {
  const TemporaryDirectory folder;
  try {
    append_recovery(folder / "nowhere/recoveries.jsonl", recovery());
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("nowhere/recoveries.jsonl"));
    EXPECT_THAT(error.what(), HasSubstr("No such file"));
  }
}

TEST(RecoveryLog, TheLineForTheConsole) {
  EXPECT_EQ(describe(recovery(), {.restart = 1, .most = 5}),
            "Recovered: rank 1 (in epoch 2, batch 7): its process was killed by signal 9 (Killed); "
            "restart 1 of 5, 3 batches repeated, 0.1 s");
  Recovery early = recovery();
  early.epoch = 0;
  early.repeated_batches = 1;
  EXPECT_THAT(describe(early, {.restart = 2, .most = 5}), HasSubstr("rank 1: its process"));
  EXPECT_THAT(describe(early, {.restart = 2, .most = 5}), HasSubstr("restart 2 of 5, 1 batch "));
  Recovery host = recovery();
  host.rank = -1;
  host.reason = "node b is lost";
  EXPECT_THAT(describe(host, {}), HasSubstr("Recovered: node b is lost; restart"));
  EXPECT_THAT(describe(host, {.restart = 2, .most = std::nullopt}), HasSubstr("; restart 2, "));
}

TEST(RecoveryLog, ALineNeverFollowsHalfALine) {
  const TemporaryDirectory folder;
  const auto path = folder / "recoveries.jsonl";
  const std::string line = to_json_line(recovery());
  const auto write = [&](const std::string& text) { std::ofstream(path) << text; };
  for (std::size_t size = 0; size <= line.size(); ++size) {
    write(line + line.substr(0, size));
    append_recovery(path, recovery());
    EXPECT_EQ(read_file(path), size == line.size() ? line + line + line : line + line) << size;
    write(line.substr(0, size));
    append_recovery(path, recovery());
    EXPECT_EQ(read_file(path), size == line.size() ? line + line : line) << size;
  }
}

}  // namespace
}  // namespace lockstep

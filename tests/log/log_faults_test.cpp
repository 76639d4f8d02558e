// Every call of the logs in files to the system fails once.
#include <cstring>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/warn.h"
#include "lockstep/log/append_file.h"
#include "lockstep/log/csv_logger.h"
#include "lockstep/log/csv_table.h"
#include "lockstep/log/logdir.h"
#include "lockstep/log/recovery_log.h"
#include "lockstep/log/summary.h"
#include "lockstep/log/tensorboard_logger.h"
#include "tests/log/event_reader.h"
#include "tests/support/io_faults.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class LogFaults : public ::testing::Test {
 protected:
  LogFaults()
      : previous_(set_warning_handler([this](const std::string& text) { warned_ += text; })) {}
  ~LogFaults() override { set_warning_handler(previous_); }

  IoFaultPlan plan() const { return {.files = folder_.path().string()}; }

  // Calls `step`, and if it throws, once more: the log must be as if it had not failed.
  void twice(const std::function<void()>& step) {
    try {
      step();
    } catch (const std::exception& error) {
      failed_ += error.what();
      step();
    }
  }

  void expect_named(const FaultedRun& run, const std::string& error) {
    EXPECT_FALSE(run.is_harmless()) << error;
    EXPECT_THAT(error, HasSubstr(folder_.path().string()));
    EXPECT_THAT(error, HasSubstr(std::strerror(run.fault.error)));
  }

  FolderInMemory folder_;
  std::string failed_;  // what was thrown
  std::string warned_;

 private:
  WarningHandler previous_;
};

TEST_F(LogFaults, APieceIsAppendedWholeOrNotAtAll) {
  const fs::path path = folder_ / "log";
  std::optional<AppendFile> file;
  fail_each_call({.plan = plan(),
                  .prepare =
                      [&] {
                        fs::remove(path);
                        file.emplace(path, AppendFile::Open::kNew);
                        file->append("first;");
                      },
                  .operation =
                      [&] {
                        file->append("second;");
                        file->sync();
                      },
                  .check =
                      [&](const FaultedRun& run) {
                        ASSERT_TRUE(run.struck);
                        const std::string content = read_file(path);
                        if (!run.error.empty()) expect_named(run, run.error);
                        const bool whole = run.error.empty() || run.call.call == IoCall::kSync;
                        EXPECT_EQ(content, whole ? "first;second;" : "first;");
                        file->append("third;");
                        EXPECT_EQ(read_file(path), content + "third;");
                      }});
}

// The disk is full, and the file cannot be cut back either: the next piece must not follow half of
// the one before.
TEST_F(LogFaults, APieceNeverFollowsAHalfPiece) {
  AppendFile file(folder_ / "log", AppendFile::Open::kNew);
  file.append("first;");
  {
    IoFaultPlan torn = plan();
    torn.always = {{IoCall::kTruncate, EIO}};
    torn.calls = {IoCall::kWrite};
    torn.nth = 1;
    torn.fault = {.error = ENOSPC, .torn = true};
    const IoFaults faults(torn);
    EXPECT_THROW(file.append("second;"), Error);
    EXPECT_THROW(file.append("third;"), Error) << "its end is still damaged";
    EXPECT_EQ(read_file(folder_ / "log"), "first;sec");
  }
  file.append("fourth;");
  EXPECT_EQ(read_file(folder_ / "log"), "first;fourth;");
}

TEST_F(LogFaults, ATableHasEveryRowOnce) {
  const fs::path path = folder_ / "train.csv";
  const auto write_rows = [&] {
    CsvTable table(path);
    twice([&] { table.add(1, {{"loss", 0.5}}); });
    twice([&] { table.add(2, {{"loss", 0.25}}); });
    twice([&] { table.add(3, {{"accuracy", 1}, {"loss", 0.125}}); });
    twice([&] { table.add(4, {{"loss", 0}}); });
    twice([&] { table.sync(); });
  };
  write_rows();
  const std::string expected = read_file(path);
  const auto runs =
      fail_each_call({.plan = plan(),
                      .prepare =
                          [&] {
                            fs::remove(path);
                            failed_ = "";
                          },
                      .operation = write_rows,
                      .check =
                          [&](const FaultedRun& run) {
                            ASSERT_TRUE(run.struck);
                            EXPECT_EQ(run.error, "") << "of the second try";
                            EXPECT_EQ(read_file(path), expected);
                            if (!failed_.empty()) expect_named(run, failed_);
                            EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()),
                                                    fs::directory_iterator()),
                                      1);
                          }});
  EXPECT_GE(runs, 60);
}

// The machine may have stopped while it wrote the line before.
TEST_F(LogFaults, ARecoveryIsListedWholeOrNotAtAll) {
  const fs::path path = folder_ / "recoveries.jsonl";
  const Recovery recovery{.rank = 1, .kind = "lost", .reason = "killed"};
  const std::string line = to_json_line(recovery);
  for (const std::string& half : {std::string(), line.substr(0, 9)}) {
    const auto runs =
        fail_each_call({.plan = plan(),
                        .prepare = [&] { std::ofstream(path) << line << half; },
                        .operation = [&] { append_recovery(path, recovery); },
                        .check =
                            [&](const FaultedRun& run) {
                              ASSERT_TRUE(run.struck);
                              if (!run.error.empty()) {
                                expect_named(run, run.error);
                                EXPECT_THAT(read_file(path), AnyOf(line, line + half));
                                append_recovery(path, recovery);
                              }
                              EXPECT_EQ(read_file(path), line + line);
                            }});
    EXPECT_GE(runs, 8) << "two opens, a read, a write";
  }
}

// What TensorBoard shows of a folder: tags and values by step. The start of a session drops steps.
std::multimap<std::int64_t, std::string> scalars_in(const fs::path& folder) {
  std::multimap<std::int64_t, std::string> found;
  for (const auto& file : reader::event_files(folder)) {
    for (const reader::Message& event : reader::read_events(file)) {
      const std::int64_t step = event.integer(2);
      if (event.has(7)) found.erase(found.lower_bound(step), found.end());
      if (!event.has(5)) continue;
      for (const reader::Message& value : event.message(5).messages(1)) {
        if (value.has(2)) {
          found.emplace(step, fmt::format("{} {}", value.text(1), value.float32(2)));
        }
      }
    }
  }
  return found;
}

TEST_F(LogFaults, EventFilesHaveEveryEventOnceAlsoAfterAResume) {
  const auto log = [&](const RunStart& start, double loss) {
    TensorBoardLogger logger(folder_.path());
    twice([&] { logger.start(start); });
    for (std::int64_t epoch = start.progress.epoch + 1; epoch <= 3; ++epoch) {
      twice([&] {
        logger.log_metrics({.scope = Scope::kLoader,
                            .loader = "train",
                            .progress = {.epoch = epoch},
                            .metrics = {{"loss", loss}}});
      });
      twice([&] { logger.flush(); });
    }
    twice([&] { logger.close(); });
  };
  const RunStart resumed{.progress = {.epoch = 1}, .resumed = true, .hparams = {{"lr", 0.1}}};
  const auto runs = fail_each_call(
      {.plan = plan(),
       .prepare =
           [&] {
             fs::remove_all(folder_ / "tensorboard");
             log({}, 0.5);
             failed_ = "";
           },
       .operation = [&] { log(resumed, 0.25); },
       .check =
           [&](const FaultedRun& run) {
             ASSERT_TRUE(run.struck);
             EXPECT_EQ(run.error, "") << "of the second try";
             const std::multimap<std::int64_t, std::string> expected = {
                 {1, "loss/epoch 0.5"}, {2, "loss/epoch 0.25"}, {3, "loss/epoch 0.25"}};
             EXPECT_EQ(scalars_in(folder_ / "tensorboard/train"), expected);
             if (!failed_.empty()) expect_named(run, failed_);
             for (const auto& entry : fs::recursive_directory_iterator(folder_.path())) {
               EXPECT_TRUE(entry.is_directory() || entry.file_size() > 0) << entry.path();
             }
           }});
  EXPECT_GE(runs, 40);
}

TEST_F(LogFaults, TheSummaryIsReplacedWholeOrNotAtAll) {
  const fs::path path = folder_ / "summary.json";
  fail_each_call({.plan = plan(),
                  .prepare = [&] { write_summary(path, {.weights_hash = "old"}); },
                  .operation = [&] { write_summary(path, {.weights_hash = "new"}); },
                  .check =
                      [&](const FaultedRun& run) {
                        const auto json = nlohmann::json::parse(read_file(path));
                        EXPECT_EQ(json["weights_hash"], run.error.empty() ? "new" : "old");
                        if (!run.error.empty()) expect_named(run, run.error);
                      }});
}

// A new run moves the files of an earlier one away: all of them or none.
TEST_F(LogFaults, AFolderThatCannotBePreparedStaysAsItWas) {
  const fs::path logdir = folder_ / "run";
  const std::vector<std::string> outputs = {"checkpoints", "logs", "summary.json"};
  fail_each_call({.plan = plan(),
                  .prepare =
                      [&] {
                        fs::remove_all(logdir);
                        fs::create_directories(logdir / "checkpoints");
                        fs::create_directories(logdir / "logs");
                        std::ofstream(logdir / "summary.json") << "earlier";
                        std::ofstream(logdir / "checkpoints" / "last.pth") << "last";
                      },
                  .operation = [&] { prepare_logdir(logdir); },
                  .check =
                      [&](const FaultedRun& run) {
                        ASSERT_TRUE(run.struck);
                        EXPECT_FALSE(fs::exists(logdir / ".lock"));
                        for (const std::string& output : outputs) {
                          EXPECT_EQ(fs::exists(logdir / output), !run.error.empty()) << output;
                        }
                        if (!run.error.empty()) expect_named(run, run.error);
                        warned_ = "";
                        if (!run.error.empty()) prepare_logdir(logdir);
                        EXPECT_EQ(read_file(logdir / "previous/1/checkpoints/last.pth"), "last");
                        EXPECT_EQ(read_file(logdir / "previous/1/summary.json"), "earlier");
                        EXPECT_FALSE(fs::exists(logdir / "previous/2"));
                      }});
}

}  // namespace
}  // namespace lockstep

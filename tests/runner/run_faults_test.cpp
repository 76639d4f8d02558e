// A whole run in which one call to the system fails.
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "lockstep/log/csv_table.h"
#include "tests/support/io_faults.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

// A table of metrics without the times, which differ between runs.
std::map<std::int64_t, Metrics> table_of(const fs::path& path) {
  auto table = read_csv_table(path);
  for (auto& [step, metrics] : table) {
    std::erase_if(metrics, [](const auto& entry) { return entry.first.starts_with("_timer"); });
  }
  return table;
}

// One fault per call, because a run takes longer than a save: the disk is full, or it fails. What
// has to be repeated is tested with the parts.
std::vector<IoFault> one_fault(IoCall call) {
  switch (call) {
    case IoCall::kWrite:
      return {{.error = ENOSPC, .torn = true}};
    case IoCall::kLink:
    case IoCall::kRename:
    case IoCall::kMakeFolder:
      return {{ENOSPC}};
    default:
      return {{EIO}};
  }
}

TEST(RunFaults, ARunEndsWithAnErrorThatNamesTheFileAndAResumeGivesTheSameBits) {
  FolderInMemory folder;
  const fs::path logdir = folder / "run";
  const auto options = [&] {
    TrainOptions options = toy::options();
    options.num_epochs = 2;
    options.logdir = logdir;
    options.hparams = {{"width", std::int64_t{16}}};
    return options;
  };
  const TrainResult undisturbed = toy::train(options());
  const auto train_table = table_of(logdir / "logs/train.csv");
  const auto valid_table = table_of(logdir / "logs/valid.csv");
  ASSERT_EQ(train_table.size(), 2u);

  toy::Warnings warnings;
  std::string hash;
  std::int64_t failed = 0;
  const auto runs = fail_each_call(
      {.plan = {.files = folder.path().string()},
       .prepare =
           [&] {
             fs::remove_all(logdir);
             warnings.texts.clear();
             hash = "";
           },
       .operation = [&] { hash = toy::train(options()).weights_hash; },
       .check =
           [&](const FaultedRun& run) {
             ASSERT_TRUE(run.struck);
             if (run.error.empty()) {
               EXPECT_EQ(hash, undisturbed.weights_hash);
             } else {
               ++failed;
               EXPECT_THAT(run.error, HasSubstr(logdir.string()));
               EXPECT_THAT(run.error, HasSubstr(std::strerror(run.fault.error)));
               TrainOptions again = options();
               if (fs::exists(logdir / "checkpoints/last.pth")) again.resume = "last";
               EXPECT_EQ(toy::train(again).weights_hash, undisturbed.weights_hash);
             }
             // The logs have every row once.
             EXPECT_EQ(table_of(logdir / "logs/train.csv"), train_table);
             EXPECT_EQ(table_of(logdir / "logs/valid.csv"), valid_table);
             EXPECT_TRUE(fs::exists(logdir / "summary.json"));
             EXPECT_FALSE(fs::exists(logdir / ".lock"));
             for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
               EXPECT_THAT(entry.path().string(), Not(HasSubstr(".tmp.")));
             }
           },
       .faults = one_fault});
  EXPECT_GE(runs, 100);
  EXPECT_GE(failed, runs / 2) << "most calls cannot fail without consequences";
}

}  // namespace
}  // namespace lockstep

#include "tests/chaos/run_record.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"

namespace lockstep::chaos {
namespace {

void write(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

TEST(WithoutTimes, DropsTheColumnsOfTimes) {
  EXPECT_EQ(without_times("step,_timer/_fps,loss,_timer/batch_time\n1,900,0.5,0.01\n2,901,0.25,\n"),
            "step,loss\n1,0.5\n2,0.25\n");
}

TEST(WithoutTimes, LeavesOtherFilesAsTheyAre) {
  const std::string text = "step,\"a,b\",loss\n1,\"x,\"\"y\",0.5\n2";
  EXPECT_EQ(without_times(text), text);
  EXPECT_EQ(without_times(""), "");
  EXPECT_EQ(without_times("step,\"a,b\",_timer/_fps\n1,\"x,\"\"y\",900\n"),
            "step,\"a,b\"\n1,\"x,\"\"y\"\n");
}

TEST(RunDifference, NamesWhatDiffers) {
  const RunRecord expected{.weights_hash = "abc",
                           .tables = {{"train.csv", "step,loss\n1,0.5\n2,0.25\n"}}};
  EXPECT_EQ(difference(expected, expected), std::nullopt);

  RunRecord other = expected;
  other.weights_hash = "abd";
  EXPECT_THAT(difference(expected, other).value(), testing::HasSubstr("'abd', expected abc"));

  other = expected;
  other.tables["train.csv"] = "step,loss\n1,0.5\n1,0.5\n2,0.25\n";
  EXPECT_THAT(difference(expected, other).value(), testing::HasSubstr("train.csv, line 3"));
  other.tables["train.csv"] = "step,loss\n1,0.5\n2,0.25";
  EXPECT_THAT(difference(expected, other).value(), testing::HasSubstr("last line"));

  other = expected;
  other.tables.clear();
  EXPECT_THAT(difference(expected, other).value(), testing::HasSubstr("train.csv is missing"));
  EXPECT_THAT(difference(other, expected).value(), testing::HasSubstr("is not expected"));

  other = expected;
  other.scalars["train loss/epoch at step 1"] = "0.5";
  EXPECT_THAT(difference(expected, other).value(), testing::HasSubstr("TensorBoard"));
}

TEST(ReadRun, ReadsWhatIsThere) {
  const TemporaryDirectory folder;
  EXPECT_EQ(read_run(folder.path()).weights_hash, "");
  write(folder / "summary.json",
        R"({"weights_hash": "12ab", "best": null, "last": {"epoch": 2, "checkpoint": "x"}})");
  write(folder / "logs/train.csv", "step,_timer/_fps\n1,5\n");
  write(folder / "logs/hparams.yml", "seed: 1\n");
  const RunRecord record = read_run(folder.path());
  EXPECT_EQ(record.weights_hash, "12ab");
  EXPECT_EQ(record.results, R"({"best":null,"last":{"epoch":2}})");
  EXPECT_THAT(record.tables, testing::ElementsAre(testing::Pair("train.csv", "step\n1\n")));
}

TEST(ReadRecoveries, LeavesOutALineThatIsBeingWritten) {
  const TemporaryDirectory folder;
  EXPECT_TRUE(read_recoveries(folder.path()).empty());
  write(folder / "recoveries.jsonl",
        "{\"time\": \"2026-01-31T12:00:00.123Z\", \"seconds\": 0.5}\n"
        "{\"time\": \"2026-02-01T00:00:00.000Z\", \"seconds\": 0.25}\n"
        "{\"time\": \"20");
  const auto recoveries = read_recoveries(folder.path());
  ASSERT_EQ(recoveries.size(), 2u);
  // `date -u -d 2026-01-31T12:00:00 +%s`
  EXPECT_EQ(recoveries[0].noticed.time_since_epoch(), std::chrono::milliseconds(1769860800123));
  EXPECT_EQ(recoveries[0].seconds, 0.5);
  EXPECT_EQ(recoveries[1].noticed - recoveries[0].noticed,
            std::chrono::milliseconds(12 * 3600 * 1000 - 123));
  EXPECT_EQ(recoveries[1].seconds, 0.25);
}

TEST(FinishedEpochs, CountsWholeLines) {
  const TemporaryDirectory folder;
  EXPECT_EQ(finished_epochs(folder.path()), 0);
  write(folder / "logs/_epoch_.csv", "step,lr\n1,0.5\n2,0.");
  EXPECT_EQ(finished_epochs(folder.path()), 1);
}

TEST(AbandonedFiles, AreFoundInAllFolders) {
  const TemporaryDirectory folder;
  write(folder / "checkpoints/last.pth", "x");
  EXPECT_TRUE(abandoned_files(folder.path()).empty());
  write(folder / "checkpoints/last.pth.tmp.12.34", "x");
  write(folder / ".lock", "x");
  EXPECT_EQ(abandoned_files(folder.path()).size(), 2u);
}

}  // namespace
}  // namespace lockstep::chaos

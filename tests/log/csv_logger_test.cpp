#include "lockstep/log/csv_logger.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"

namespace lockstep {
namespace {

Record loader_record(const std::string& loader, std::int64_t epoch, Metrics metrics) {
  return {.scope = Scope::kLoader,
          .loader = loader,
          .progress = {.epoch = epoch, .num_epochs = 8},
          .metrics = std::move(metrics)};
}

TEST(CsvLogger, OneFilePerLoaderAndOneForTheEpochs) {
  TemporaryDirectory logdir;
  CsvLogger logger(logdir.path());
  logger.start({.hparams = {{"lr", 0.02}}});
  logger.log_metrics(loader_record("train", 1, {{"loss", 0.5}}));
  logger.log_metrics(loader_record("valid", 1, {{"loss", 0.75}}));
  logger.log_metrics({.scope = Scope::kEpoch,
                      .loader = kEpochKey,
                      .progress = {.epoch = 1},
                      .metrics = {{"lr", 0.02}}});
  logger.flush();
  EXPECT_EQ(read_file(logdir / "logs/train.csv"), "step,loss\n1,0.5\n");
  EXPECT_EQ(read_file(logdir / "logs/valid.csv"), "step,loss\n1,0.75\n");
  EXPECT_EQ(read_file(logdir / "logs/_epoch_.csv"), "step,lr\n1,0.02\n");
  EXPECT_EQ(read_file(logdir / "logs/hparams.yml"), "lr: 0.02\n");
  logger.close();
}

TEST(CsvLogger, ImagesAndArtifactsAreFiles) {
  TemporaryDirectory logdir;
  CsvLogger logger(logdir.path());
  logger.start({});
  const Image picture = make_image({.width = 3, .height = 3}, {9, 9, 9});
  logger.log_image("valid", "matrix", picture, {.epoch = 5});
  EXPECT_EQ(read_file(logdir / "images/valid/matrix.0005.png"), encode_png(picture));
  EXPECT_THROW(logger.log_image("valid", "../../matrix", picture, {.epoch = 5}), ConfigError);
  logger.log_artifact({.name = "tables/worst.csv", .content = "1,2"}, {.epoch = 5});
  EXPECT_EQ(read_file(logdir / "artifacts/tables/worst.csv"), "1,2");
}

Record batch_record(const std::string& loader, std::int64_t step, double loss) {
  return {.scope = Scope::kBatch,
          .loader = loader,
          .progress = {.epoch = 1, .sample_step = step},
          .metrics = {{"loss", loss}}};
}

TEST(CsvLogger, BatchesAreNotWrittenByDefault) {
  TemporaryDirectory logdir;
  CsvLogger logger(logdir.path());
  logger.start({});
  logger.log_metrics(batch_record("train", 8, 0.5));
  EXPECT_FALSE(std::filesystem::exists(logdir / "logs/train.csv"));
  EXPECT_FALSE(std::filesystem::exists(logdir / "logs/batches"));
}

TEST(CsvLogger, BatchesHaveAFileOfTheirOwn) {
  TemporaryDirectory logdir;
  const auto run = [&](const RunStart& start, const std::vector<Record>& records) {
    CsvLogger logger(logdir.path(), {.log_batches = true});
    logger.start(start);
    for (const Record& record : records) logger.log_metrics(record);
    logger.close();
  };
  Record valid = batch_record("valid", 24, 0.25);
  valid.step = 5;  // samples of this loader
  run({}, {batch_record("train", 8, 1), batch_record("train", 16, 2), batch_record("train", 24, 3),
           valid, loader_record("train", 1, {{"loss", 2}})});
  EXPECT_EQ(read_file(logdir / "logs/batches/train.csv"), "step,loss\n8,1\n16,2\n24,3\n");
  EXPECT_EQ(read_file(logdir / "logs/batches/valid.csv"), "step,loss\n5,0.25\n");
  EXPECT_EQ(read_file(logdir / "logs/train.csv"), "step,loss\n1,2\n");
  // The checkpoint was made after 16 samples: the third batch is run again.
  run({.progress = {.sample_step = 16}, .resumed = true},
      {batch_record("train", 24, 4), batch_record("train", 32, 5)});
  EXPECT_EQ(read_file(logdir / "logs/batches/train.csv"), "step,loss\n8,1\n16,2\n24,4\n32,5\n");
  run({}, {batch_record("train", 8, 6)});
  EXPECT_EQ(read_file(logdir / "logs/batches/train.csv"), "step,loss\n8,6\n");
}

TEST(CsvLogger, AFreshRunBeginsAnewAndAResumedOneGoesOn) {
  TemporaryDirectory logdir;
  const auto run = [&](const RunStart& start, std::int64_t first, std::int64_t last, double loss) {
    CsvLogger logger(logdir.path());
    logger.start(start);
    for (std::int64_t epoch = first; epoch <= last; ++epoch) {
      logger.log_metrics(loader_record("train", epoch, {{"loss", loss}}));
    }
    logger.close();
  };
  run({}, 1, 3, 1.0);
  // Two epochs are in the checkpoint; the third is run again.
  run({.progress = {.epoch = 2}, .resumed = true}, 3, 4, 2.0);
  EXPECT_EQ(read_file(logdir / "logs/train.csv"), "step,loss\n1,1\n2,1\n3,2\n4,2\n");
  run({}, 1, 1, 3.0);
  EXPECT_EQ(read_file(logdir / "logs/train.csv"), "step,loss\n1,3\n");
}

// Whatever is left of a file when the machine stops, a resumed run has all rows of the epochs that
// its checkpoint knows.
TEST(CsvLogger, AResumeWritesRowsAgainThatAFileHasLost) {
  TemporaryDirectory logdir;
  const EpochMetrics first = {{"train", {{"loss", 1}}}, {kEpochKey, {{"lr", 0.1}}}};
  const EpochMetrics second = {{"train", {{"loss", 0.5}}}, {kEpochKey, {{"lr", 0.01}}}};
  const std::string train = "step,loss\n1,1\n2,0.5\n";
  const std::string epochs = "step,lr\n1,0.1\n2,0.01\n";
  make_directories(logdir / "logs");
  for (std::size_t size = 0; size <= train.size(); ++size) {
    write_file_atomically(logdir / "logs/train.csv", train.substr(0, size));
    write_file_atomically(logdir / "logs/_epoch_.csv", epochs.substr(0, size));
    CsvLogger logger(logdir.path());
    logger.start({.progress = {.epoch = 2}, .resumed = true, .history = {{1, first}, {2, second}}});
    EXPECT_EQ(read_file(logdir / "logs/train.csv"), train) << size;
    EXPECT_EQ(read_file(logdir / "logs/_epoch_.csv"), epochs) << size;
    logger.log_metrics(loader_record("train", 3, {{"loss", 0.25}}));
    EXPECT_EQ(read_file(logdir / "logs/train.csv"), train + "3,0.25\n") << size;
  }
}

TEST(CsvLogger, ALoaderCannotWriteOutsideTheFolder) {
  TemporaryDirectory logdir;
  CsvLogger logger(logdir / "run");
  logger.start({});
  EXPECT_THROW(logger.log_metrics(loader_record("../../evil", 1, {{"x", 1}})), ConfigError);
  EXPECT_THROW(logger.log_metrics(loader_record("", 1, {{"x", 1}})), ConfigError);
}

}  // namespace
}  // namespace lockstep

#include "lockstep/log/once_logger.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// Remembers what it was given.
class Remembering final : public Logger {
 public:
  void start(const RunStart&) override { ++starts; }
  void log_metrics(const Record& record) override {
    if (fails) throw Error("no space left");
    epochs.push_back(record.progress.epoch);
  }
  void log_image(const std::string&, const std::string& tag, const Image&,
                 const Progress&) override {
    tags.push_back(tag);
  }
  void log_artifact(const Artifact& artifact, const Progress&) override {
    names.push_back(artifact.name);
  }
  void end(const RunEnd& run) override { ends.push_back(run.status); }
  void log_histogram(const std::string&, const std::string& tag, const Histogram&,
                     const Progress&) override {
    tags.push_back(tag);
  }
  void close() override { ++closes; }

  std::vector<std::int64_t> epochs;
  std::vector<std::string> tags;
  std::vector<std::string> names;
  std::vector<RunEnd::Status> ends;
  int starts = 0, closes = 0;
  bool fails = false;
};

Record record_of(std::int64_t epoch) {
  return {.scope = Scope::kEpoch, .loader = "train", .progress = {.epoch = epoch}};
}

TEST(OnceLogger, LeavesOutTheRecordsThatAreRepeated) {
  const auto inner = std::make_shared<Remembering>();
  OnceLogger logger(inner);
  logger.start({});
  logger.log_metrics(record_of(1));
  const OnceLogger::Positions point = logger.position();
  logger.log_metrics(record_of(2));
  logger.log_image("train", "matrix", {}, {});
  logger.log_artifact({.name = "a"}, {});
  // The run goes back to the point twice, and the second time gets further.
  for (int attempt = 0; attempt < 2; ++attempt) {
    logger.rewind(point);
    logger.log_metrics(record_of(2));
  }
  logger.log_image("train", "matrix", {}, {});
  logger.log_artifact({.name = "a"}, {});
  logger.log_histogram("train", "weights", {}, {});
  logger.log_metrics(record_of(3));
  logger.end({.status = RunEnd::Status::kFailed});
  logger.close();
  EXPECT_EQ(inner->names, std::vector<std::string>{"a"});
  EXPECT_EQ(inner->ends, std::vector<RunEnd::Status>{RunEnd::Status::kFailed});
  EXPECT_EQ(inner->epochs, (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(inner->tags, (std::vector<std::string>{"matrix", "weights"}));
  EXPECT_EQ(inner->starts, 1);
  EXPECT_EQ(inner->closes, 1);
}

// The record of a checkpoint comes when its file is written: at another place of the repetition.
TEST(OnceLogger, StreamsAreCountedForThemselves) {
  const auto inner = std::make_shared<Remembering>();
  OnceLogger logger(inner);
  const auto log_checkpoint = [&] {
    EXPECT_EQ(logger.set_stream(1), 0);
    logger.log_metrics(record_of(100));
    EXPECT_EQ(logger.set_stream(0), 1);
  };
  logger.log_metrics(record_of(1));
  const OnceLogger::Positions point = logger.position();
  logger.log_metrics(record_of(2));
  log_checkpoint();
  logger.log_metrics(record_of(3));
  logger.rewind(point);
  for (const int epoch : {2, 3, 4}) logger.log_metrics(record_of(epoch));
  log_checkpoint();
  EXPECT_EQ(inner->epochs, (std::vector<std::int64_t>{1, 2, 100, 3, 4}));
}

// The run goes on with fewer workers, so rank 0 has more shards and logs more records in a batch.
TEST(OnceLogger, ABatchMayHaveAnotherNumberOfRecordsInTheRepetition) {
  const auto inner = std::make_shared<Remembering>();
  OnceLogger logger(inner);
  const OnceLogger::Positions point = logger.position();
  for (const int batch : {10, 20}) {
    logger.log_metrics(record_of(batch));
    logger.next_batch();
  }
  logger.log_metrics(record_of(30));  // and then the run fails
  logger.rewind(point);
  for (const int batch : {10, 20, 30, 40}) {
    logger.log_metrics(record_of(batch));
    logger.log_metrics(record_of(batch + 1));
    logger.next_batch();
  }
  EXPECT_EQ(inner->epochs, (std::vector<std::int64_t>{10, 20, 30, 31, 40, 41}));
}

// A run that goes back to a point inside an epoch calls the hooks of the epoch's start again.
TEST(OnceLogger, RecordsOfStartsAreCountedForThemselves) {
  const auto inner = std::make_shared<Remembering>();
  OnceLogger logger(inner);
  const auto log_start = [&](std::int64_t start) {
    logger.set_start(start);
    logger.log_metrics(record_of(100 + start));
    logger.set_stream(0);
  };
  log_start(3);
  logger.log_metrics(record_of(1));
  logger.next_batch();
  const OnceLogger::Positions point = logger.position();
  logger.log_metrics(record_of(2));
  logger.next_batch();
  log_start(4);
  logger.rewind(point);
  log_start(3);
  for (const int batch : {2, 3}) {
    logger.log_metrics(record_of(batch));
    logger.next_batch();
    if (batch == 2) log_start(4);
  }
  log_start(5);
  EXPECT_EQ(inner->epochs, (std::vector<std::int64_t>{103, 1, 2, 104, 3, 105}));
}

TEST(OnceLogger, ARecordThatCouldNotBeWrittenIsWrittenInTheNextAttempt) {
  const auto inner = std::make_shared<Remembering>();
  OnceLogger logger(inner);
  inner->fails = true;
  EXPECT_THROW(logger.log_metrics(record_of(1)), Error);
  inner->fails = false;
  logger.rewind({});
  logger.log_metrics(record_of(1));
  logger.log_metrics(record_of(2));
  EXPECT_EQ(inner->epochs, (std::vector<std::int64_t>{1, 2}));
}

}  // namespace
}  // namespace lockstep

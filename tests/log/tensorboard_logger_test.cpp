#include "lockstep/log/tensorboard_logger.h"

#include <algorithm>
#include <fstream>
#include <functional>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "tests/log/event_reader.h"

namespace lockstep {
namespace {

using reader::event_files;
using reader::Message;
using reader::Point;
using reader::points;
using reader::read_events;

Record record_of(Scope scope, const std::string& loader, const Progress& progress, double loss) {
  return {.scope = scope, .loader = loader, .progress = progress, .metrics = {{"loss", loss}}};
}

TEST(TensorBoardLogger, OneFolderPerLoader) {
  TemporaryDirectory logdir;
  TensorBoardLogger logger(logdir.path());
  logger.start({});
  logger.log_metrics(record_of(Scope::kLoader, "train", {.epoch = 1}, 0.5));
  logger.log_metrics(record_of(Scope::kLoader, "valid", {.epoch = 1}, 0.75));
  logger.log_metrics(record_of(Scope::kEpoch, kEpochKey, {.epoch = 1}, 0.25));
  logger.log_metrics(record_of(Scope::kBatch, "train", {.epoch = 1, .sample_step = 32}, 0.1));
  // What is logged can be read before flush() or close().
  EXPECT_EQ(points(logdir / "tensorboard/train"), (std::vector<Point>{{1, "loss/epoch", 0.5f}}));
  EXPECT_EQ(points(logdir / "tensorboard/valid"), (std::vector<Point>{{1, "loss/epoch", 0.75f}}));
  EXPECT_EQ(points(logdir / "tensorboard/_epoch_"), (std::vector<Point>{{1, "loss/epoch", 0.25f}}));
}

TEST(TensorBoardLogger, BatchesBySamplesIfAskedFor) {
  TemporaryDirectory logdir;
  TensorBoardLogger logger(logdir.path(), {.log_batches = true});
  logger.start({});
  logger.log_metrics(record_of(Scope::kBatch, "train", {.epoch = 1, .sample_step = 32}, 0.5));
  logger.log_metrics(record_of(Scope::kBatch, "train", {.epoch = 1, .sample_step = 64}, 0.25));
  EXPECT_EQ(points(logdir / "tensorboard/train"),
            (std::vector<Point>{{32, "loss/batch", 0.5f}, {64, "loss/batch", 0.25f}}));
}

Record valid_batch(std::int64_t epoch, std::int64_t step, double loss) {
  Record record = record_of(Scope::kBatch, "valid", {.epoch = epoch, .sample_step = 60000}, loss);
  record.step = step;
  return record;
}

TEST(TensorBoardLogger, BatchesOfALoaderThatIsNotTrainedOnHaveStepsOfTheirOwn) {
  TemporaryDirectory logdir;
  TensorBoardLogger logger(logdir.path(), {.log_batches = true});
  logger.start({});
  logger.log_metrics(valid_batch(1, 32, 0.5));
  logger.log_metrics(valid_batch(1, 64, 0.25));
  EXPECT_EQ(points(logdir / "tensorboard/valid"),
            (std::vector<Point>{{32, "loss/batch", 0.5f}, {64, "loss/batch", 0.25f}}));
}

// This holds even if the loader has more samples than were trained on, so that its steps are larger
// than the run's.
TEST(TensorBoardLogger, AResumeKeepsTheBatchesThatWereEvaluatedBeforeIt) {
  TemporaryDirectory logdir;
  {
    TensorBoardLogger logger(logdir.path(), {.log_batches = true});
    logger.start({});
    for (const std::int64_t step : {50000, 100000, 150000, 200000}) {
      logger.log_metrics(valid_batch(step <= 100000 ? 1 : 2, step, 1));
    }
    logger.close();
  }
  TensorBoardLogger logger(logdir.path(), {.log_batches = true});
  logger.start({.progress = {.epoch = 1, .sample_step = 60000}, .resumed = true});
  logger.log_metrics(record_of(Scope::kLoader, "valid", {.epoch = 1}, 3));
  logger.log_metrics(valid_batch(2, 150000, 2));
  EXPECT_EQ(points(logdir / "tensorboard/valid"), (std::vector<Point>{{50000, "loss/batch", 1},
                                                                      {100000, "loss/batch", 1},
                                                                      {1, "loss/epoch", 3},
                                                                      {150000, "loss/batch", 2}}));
}

TEST(TensorBoardLogger, AResumeSupersedesWhatIsRunAgain) {
  TemporaryDirectory logdir;
  {
    TensorBoardLogger logger(logdir.path());
    logger.start({});
    for (int epoch = 1; epoch <= 4; ++epoch) {
      logger.log_metrics(record_of(Scope::kLoader, "train", {.epoch = epoch}, 1));
    }
    logger.close();
  }
  TensorBoardLogger logger(logdir.path());
  logger.start({.progress = {.epoch = 2}, .resumed = true});
  logger.log_metrics(record_of(Scope::kLoader, "train", {.epoch = 3}, 2));
  EXPECT_EQ(event_files(logdir / "tensorboard/train").size(), 2u);
  EXPECT_EQ(points(logdir / "tensorboard/train"),
            (std::vector<Point>{{1, "loss/epoch", 1}, {2, "loss/epoch", 1}, {3, "loss/epoch", 2}}));
}

TEST(TensorBoardLogger, AResumeKeepsTheBatchesBeforeIt) {
  TemporaryDirectory logdir;
  {
    TensorBoardLogger logger(logdir.path(), {.log_batches = true});
    logger.start({});
    for (const std::int64_t samples : {32, 64, 96}) {
      logger.log_metrics(
          record_of(Scope::kBatch, "train", {.epoch = 1, .sample_step = samples}, 1));
    }
    logger.close();
  }
  TensorBoardLogger logger(logdir.path(), {.log_batches = true});
  logger.start({.progress = {.epoch = 0, .sample_step = 64}, .resumed = true});
  logger.log_metrics(record_of(Scope::kBatch, "train", {.epoch = 1, .sample_step = 96}, 2));
  EXPECT_EQ(
      points(logdir / "tensorboard/train"),
      (std::vector<Point>{{32, "loss/batch", 1}, {64, "loss/batch", 1}, {96, "loss/batch", 2}}));
}

// A new process of the same run repeats what came after its point. The files have some of it.
TEST(TensorBoardLogger, ARestartWritesOnlyWhatIsMissing) {
  for (const bool log_batches : {false, true}) {
    TemporaryDirectory logdir;
    const auto batch = [](TensorBoardLogger& logger, std::int64_t step) {
      logger.log_metrics(
          record_of(Scope::kBatch, "train", {.epoch = 1 + step / 100, .sample_step = step}, 1));
    };
    const auto epoch = [](TensorBoardLogger& logger, std::int64_t step, double value) {
      logger.log_metrics(record_of(Scope::kLoader, "train", {.epoch = step}, value));
    };
    const Image picture = make_image({.width = 2, .height = 2}, {});
    {
      TensorBoardLogger logger(logdir.path(), {.log_batches = log_batches});
      logger.start({});
      batch(logger, 32);
      epoch(logger, 1, 1);
      batch(logger, 132);  // the point is here
      epoch(logger, 2, 2);
      logger.log_image("train", "picture", picture, {.epoch = 2});
      batch(logger, 164);
    }
    TensorBoardLogger logger(logdir.path(), {.log_batches = log_batches});
    logger.start(
        {.progress = {.epoch = 1, .sample_step = 132}, .resumed = true, .restarted = true});
    epoch(logger, 2, 2);
    batch(logger, 164);
    batch(logger, 196);
    epoch(logger, 2, 3);  // a second value of this epoch
    epoch(logger, 3, 4);
    std::vector<Point> expected = {
        {1, "loss/epoch", 1}, {2, "loss/epoch", 2}, {2, "loss/epoch", 3}, {3, "loss/epoch", 4}};
    if (log_batches) {
      expected = {{32, "loss/batch", 1}, {1, "loss/epoch", 1},   {132, "loss/batch", 1},
                  {2, "loss/epoch", 2},  {164, "loss/batch", 1}, {196, "loss/batch", 1},
                  {2, "loss/epoch", 3},  {3, "loss/epoch", 4}};
    }
    EXPECT_EQ(points(logdir / "tensorboard/train"), expected);
    for (const auto& file : event_files(logdir / "tensorboard/train")) {
      for (const Message& event : read_events(file)) EXPECT_FALSE(event.has(7)) << "drops nothing";
    }
  }
}

const std::map<std::int64_t, EpochMetrics> kHistory = {{1, {{"train", {{"loss", 4}}}}},
                                                       {2, {{"train", {{"loss", 2}}}}},
                                                       {3, {{"train", {{"loss", 1}}}}}};

// Logs the epochs of kHistory, with one batch in each. Returns the event file of the loader.
std::filesystem::path log_history(const std::filesystem::path& logdir,
                                  const TensorBoardOptions& options = {}) {
  TensorBoardLogger logger(logdir, options);
  logger.start({});
  for (const auto& [epoch, metrics] : kHistory) {
    const Progress progress{.epoch = epoch, .sample_step = 32 * epoch};
    logger.log_metrics(record_of(Scope::kBatch, "train", progress, 8));
    logger.log_metrics({Scope::kLoader, "train", progress, metrics.at("train")});
  }
  return event_files(logdir / "tensorboard/train").at(0);
}

// Calls `check` with log folders in which the event file is cut, at every byte.
void at_every_cut(const TensorBoardOptions& options,
                  const std::function<void(const std::filesystem::path& logdir)>& check) {
  TemporaryDirectory whole;
  const auto file = log_history(whole.path(), options);
  const std::string bytes = read_file(file);
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    SCOPED_TRACE(size);
    TemporaryDirectory logdir;
    make_directories(logdir / "tensorboard/train");
    std::ofstream(logdir / "tensorboard/train" / file.filename(), std::ios::binary)
        << bytes.substr(0, size);
    check(logdir.path());
  }
}

TEST(TensorBoardLogger, AResumeWritesEpochsAgainThatAFileHasLost) {
  const std::vector<Point> expected = {
      {1, "loss/epoch", 4}, {2, "loss/epoch", 2}, {3, "loss/epoch", 1}, {4, "loss/epoch", 0}};
  at_every_cut({}, [&](const std::filesystem::path& logdir) {
    for (const std::int64_t finished : {3, 4}) {  // the second resume has nothing to mend
      TensorBoardLogger logger(logdir);
      auto history = kHistory;
      if (finished == 4) history[4] = {{"train", {{"loss", 0}}}};
      logger.start({.progress = {.epoch = finished}, .resumed = true, .history = history});
      if (finished == 3) logger.log_metrics(record_of(Scope::kLoader, "train", {.epoch = 4}, 0));
      EXPECT_EQ(points(logdir / "tensorboard/train", reader::TornEnd::kSkip), expected);
    }
    EXPECT_EQ(event_files(logdir / "tensorboard/train").size(), 2u);
  });
}

// Values of batches are not in the history. Those that the file still has stay.
TEST(TensorBoardLogger, EpochsComeBackAlsoBetweenBatches) {
  const TensorBoardOptions options{.log_batches = true};
  at_every_cut(options, [&](const std::filesystem::path& logdir) {
    auto expected = points(logdir / "tensorboard/train", reader::TornEnd::kSkip);
    TensorBoardLogger logger(logdir, options);
    logger.start(
        {.progress = {.epoch = 3, .sample_step = 96}, .resumed = true, .history = kHistory});
    for (const auto& [epoch, metrics] : kHistory) {
      const Point point{epoch, "loss/epoch", static_cast<float>(metrics.at("train").at("loss"))};
      if (std::ranges::find(expected, point) == expected.end()) expected.push_back(point);
    }
    EXPECT_EQ(points(logdir / "tensorboard/train", reader::TornEnd::kSkip), expected);
  });
}

// An earlier file was damaged after a later one was written: TensorBoard needs all later epochs
// again.
TEST(TensorBoardLogger, EpochsAfterALostOneAreRepeated) {
  TemporaryDirectory logdir;
  const auto first = log_history(logdir.path());
  const auto resume = [&](std::int64_t finished, std::int64_t next,
                          const std::map<std::int64_t, EpochMetrics>& history) {
    TensorBoardLogger logger(logdir.path());
    logger.start({.progress = {.epoch = finished}, .resumed = true, .history = history});
    logger.log_metrics(record_of(Scope::kLoader, "train", {.epoch = next}, 0));
  };
  resume(3, 4, kHistory);
  // A part of epoch 2, and epoch 3.
  std::filesystem::resize_file(first, std::filesystem::file_size(first) - 80);
  auto history = kHistory;
  history[4] = {{"train", {{"loss", 0}}}};
  resume(4, 5, history);
  EXPECT_EQ(points(logdir / "tensorboard/train", reader::TornEnd::kSkip),
            (std::vector<Point>{{1, "loss/epoch", 4},
                                {2, "loss/epoch", 2},
                                {3, "loss/epoch", 1},
                                {4, "loss/epoch", 0},
                                {5, "loss/epoch", 0}}));
}

TEST(TensorBoardLogger, HparamsComeAtTheStartAndTheirMetricsAfterTheFirstEpoch) {
  TemporaryDirectory logdir;
  TensorBoardLogger logger(logdir.path());
  logger.start({.hparams = {{"lr", 0.02}}});
  const auto tags = [&] {
    std::vector<std::string> found;
    for (const Message& event : read_events(event_files(logdir / "tensorboard").at(0))) {
      if (event.has(5)) found.push_back(event.message(5).message(1).text(1));
    }
    return found;
  };
  EXPECT_EQ(tags(), (std::vector<std::string>{"_hparams_/session_start_info", "hparams"}));
  for (int epoch = 1; epoch <= 2; ++epoch) {
    logger.log_metrics(record_of(Scope::kLoader, "valid", {.epoch = epoch}, 0.75));
    logger.flush();
  }
  EXPECT_EQ(tags(), (std::vector<std::string>{"_hparams_/session_start_info", "hparams",
                                              "_hparams_/experiment"}));
}

TEST(TensorBoardLogger, ImagesAreWrittenByEpoch) {
  TemporaryDirectory logdir;
  TensorBoardLogger logger(logdir.path());
  logger.start({});
  const Image picture = make_image({.width = 3, .height = 3}, {9, 9, 9});
  logger.log_image("valid", "confusion_matrix", picture, {.epoch = 5});
  const auto events = read_events(event_files(logdir / "tensorboard/valid").at(0));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].integer(2), 5);
  EXPECT_EQ(events[1].message(5).message(1).text(1), "confusion_matrix");
  EXPECT_EQ(events[1].message(5).message(1).message(4).text(4), encode_png(picture));
}

TEST(TensorBoardLogger, ShortTextIsShown) {
  TemporaryDirectory logdir;
  TensorBoardLogger logger(logdir.path());
  logger.start({});
  logger.log_artifact({.name = "tables/worst.csv", .content = "1,2\n3,4"}, {.epoch = 5});
  logger.log_artifact({.name = "bytes", .content = std::string("\xff\x00", 2)}, {.epoch = 5});
  logger.log_artifact({.name = "long", .content = std::string(70'000, 'x')}, {.epoch = 5});
  const auto events = read_events(event_files(logdir / "tensorboard").at(0));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].integer(2), 5);
  EXPECT_EQ(events[1].message(5).message(1).text(1), "tables/worst.csv");
  EXPECT_THROW(logger.log_artifact({.name = "../x", .content = "1"}, {}), ConfigError);
}

TEST(TensorBoardLogger, ALoaderCannotWriteOutsideTheFolder) {
  TemporaryDirectory logdir;
  TensorBoardLogger logger(logdir.path());
  EXPECT_THROW(logger.log_metrics(record_of(Scope::kLoader, "../x", {}, 1)), ConfigError);
  EXPECT_THROW(logger.log_image("..", "tag", make_image({.width = 1, .height = 1}, {}), {}),
               ConfigError);
}

// The steps of the histograms of a folder, as TensorBoard would show them.
std::vector<std::int64_t> histogram_steps(const std::filesystem::path& folder) {
  std::vector<std::int64_t> found;
  for (const auto& file : event_files(folder)) {
    for (const Message& event : read_events(file)) {
      const std::int64_t step = event.integer(2);
      if (event.has(7)) std::erase_if(found, [&](std::int64_t other) { return other >= step; });
      if (event.has(5) && event.message(5).message(1).has(5)) found.push_back(step);
    }
  }
  return found;
}

TEST(TensorBoardLogger, HistogramsHaveTheUpdatesAsSteps) {
  TemporaryDirectory logdir;
  const Histogram histogram{.num = 1, .bucket_limits = {0, 1}, .buckets = {0, 1}};
  const auto log = [&](const RunStart& start, const std::vector<std::int64_t>& steps) {
    TensorBoardLogger logger(logdir.path());
    logger.start(start);
    for (const std::int64_t step : steps) {
      logger.log_histogram("train", "weights/0.bias", histogram, {.update_step = step});
    }
    logger.close();
  };
  log({}, {10, 20, 30});
  // Resumed after the first epoch, in which there were 15 updates.
  log({.progress = {.epoch = 1, .update_step = 15}, .resumed = true}, {20, 30, 40});
  EXPECT_EQ(histogram_steps(logdir / "tensorboard/train/histograms"),
            (std::vector<std::int64_t>{10, 20, 30, 40}));
}

}  // namespace
}  // namespace lockstep

#include "lockstep/checkpoint/store.h"

#include <fstream>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/warn.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/checkpoint/pickle.h"
#include "lockstep/state/hash.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> files(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

void save_one(Store& store, std::int64_t epoch, double score) {
  const EpochMetrics metrics{{"valid", {{"loss", score}}}};
  const auto write = store.decide_epoch({.epoch = epoch, .score = score, .metrics = metrics});
  write(
      StateDict{{"epoch", epoch}, {"epoch_metrics", to_state(metrics)}, {"store", store.state()}});
}

void save_epochs(Store& store, const std::vector<double>& scores) {
  for (std::size_t i = 0; i < scores.size(); ++i) {
    save_one(store, static_cast<std::int64_t>(i) + 1, scores[i]);
  }
}

std::optional<double> by_loss(std::int64_t, const EpochMetrics& metrics) {
  return metrics.at("valid").at("loss");
}

std::int64_t epoch_of(const fs::path& path) {
  return load(path).get<std::int64_t>("epoch");
}

TEST(Store, KeepsTheBestAndTheLastAndNeverMore) {
  TemporaryDirectory folder;
  Store store({.folder = folder.path(), .keep_best = 2});
  save_epochs(store, {0.5, 0.3, 0.4, 0.9});
  EXPECT_THAT(files(folder.path()), ElementsAre("_metrics.json", "best.pth", "epoch.0002.pth",
                                                "epoch.0003.pth", "last.pth"));
  EXPECT_EQ(epoch_of(store.best_path()), 2);
  EXPECT_EQ(epoch_of(store.last_path()), 4);
}

TEST(Store, MaximizesWhenAskedTo) {
  TemporaryDirectory folder;
  Store store({.folder = folder.path(), .better = Better::kLarger});
  save_epochs(store, {0.5, 0.9, 0.7});
  EXPECT_EQ(epoch_of(store.best_path()), 2);
}

TEST(Store, TheFirstOfEqualsStaysTheBest) {
  TemporaryDirectory folder;
  Store store({.folder = folder.path()});
  save_epochs(store, {0.5, 0.5, 0.5});
  EXPECT_EQ(epoch_of(store.best_path()), 1);
}

TEST(Store, NotANumberIsNeverTheBest) {
  TemporaryDirectory folder;
  Store store({.folder = folder.path()});
  save_epochs(store, {std::numeric_limits<double>::quiet_NaN(), 0.5});
  EXPECT_EQ(epoch_of(store.best_path()), 2);
}

TEST(Store, KeepsOnlyTheLastWhenAskedForNone) {
  TemporaryDirectory folder;
  Store store({.folder = folder.path(), .keep_best = 0});
  save_epochs(store, {0.5, 0.3});
  EXPECT_THAT(files(folder.path()), ElementsAre("_metrics.json", "last.pth"));
}

// When Catalyst removed old checkpoints, it deleted train.10 together with train.1.
TEST(Store, DroppingEpoch1KeepsEpoch10) {
  TemporaryDirectory folder;
  Store store({.folder = folder.path()});
  save_epochs(store, {1, 2, 2, 2, 2, 2, 2, 2, 2, 0.5, 0.7});
  EXPECT_THAT(files(folder.path()),
              ElementsAre("_metrics.json", "best.pth", "epoch.0010.pth", "last.pth"));
}

TEST(Store, DecidesFirstAndWritesLater) {
  TemporaryDirectory folder;
  Store store({.folder = folder.path()});
  save_epochs(store, {0.5});
  const std::string before = read_file(folder / "_metrics.json");
  const auto write = store.decide_epoch({.epoch = 2, .score = 0.3});
  const auto decided = store.state().get<StateList>("best");
  ASSERT_EQ(decided.size(), 1u);
  EXPECT_EQ(decided[0].get_if<StateDict>()->get<std::int64_t>("epoch"), 2);
  EXPECT_THAT(files(folder.path()),
              ElementsAre("_metrics.json", "best.pth", "epoch.0001.pth", "last.pth"));
  EXPECT_EQ(read_file(folder / "_metrics.json"), before);
  const auto next = store.decide_epoch({.epoch = 3, .score = 0.1});
  write(StateDict{{"epoch", 2}});
  EXPECT_EQ(epoch_of(store.best_path()), 2) << "a later decision must not change an earlier one";
  next(StateDict{{"epoch", std::int64_t{3}}});
  EXPECT_EQ(epoch_of(store.best_path()), 3);
  store.decide_last()(StateDict{{"epoch", 4}});
  EXPECT_EQ(epoch_of(store.last_path()), 4);
  EXPECT_THAT(files(folder.path()),
              ElementsAre("_metrics.json", "best.pth", "epoch.0003.pth", "last.pth"));
}

// A folder in which nothing can be written fails, and leaves what was there.
TEST(Store, AWriteThatFailsLeavesTheFilesOfBefore) {
  TemporaryDirectory folder;
  Store store({.folder = folder / "a"});
  save_epochs(store, {0.5});
  const auto write = store.decide_epoch({.epoch = 2, .score = 0.3});
  fs::rename(folder / "a", folder / "b");
  EXPECT_THROW(write(StateDict{{"epoch", 2}}), Error);
  EXPECT_EQ(epoch_of(folder / "b/last.pth"), 1);
  EXPECT_EQ(epoch_of(folder / "b/best.pth"), 1);
}

TEST(Store, TheIndexNamesScoresAndFiles) {
  TemporaryDirectory folder;
  Store store({.folder = folder.path()});
  save_epochs(store, {0.5, 0.25, 0.75});
  const auto index = nlohmann::json::parse(read_file(folder / "_metrics.json"));
  EXPECT_EQ(index["best"]["_score_"], 0.25);
  EXPECT_EQ(index["best"]["checkpoint"], "epoch.0002.pth");
  EXPECT_EQ(index["last"]["metrics"]["valid"]["loss"], 0.75);
}

TEST(Store, GoesOnFromItsOwnState) {
  TemporaryDirectory folder;
  {
    Store store({.folder = folder.path(), .keep_best = 2});
    save_epochs(store, {0.5, 0.3});
  }
  Store again({.folder = folder.path(), .keep_best = 2});
  again.load_state(load(folder / "last.pth").get<StateDict>("store"), by_loss);
  ASSERT_EQ(again.best().size(), 2u)
      << "the saved state must include the epoch in which it was saved";
  EXPECT_EQ(again.best().front().epoch, 2);
  EXPECT_EQ(again.best().front().metrics.at("valid").at("loss"), 0.3);
}

// The user copied only last.pth and best.pth to another machine.
TEST(Store, ABestFileWithoutItsOtherNameStaysTheBest) {
  TemporaryDirectory folder;
  Store store({.folder = folder / "a", .keep_best = 2});
  save_epochs(store, {0.3, 0.5});
  fs::create_directory(folder / "b");
  for (const char* const name : {"last.pth", "best.pth"}) {
    fs::copy_file(folder / "a" / name, folder / "b" / name);
  }
  Store again({.folder = folder / "b"});
  again.load_state(load(folder / "b/last.pth").get<StateDict>("store"), by_loss);
  ASSERT_EQ(again.best().size(), 1u) << "the file of epoch 2 is gone";
  EXPECT_EQ(again.best_file(), folder / "b/best.pth");
  save_one(again, 3, 0.4);
  EXPECT_EQ(epoch_of(again.best_path()), 1);
  EXPECT_THAT(files(folder / "b"),
              ElementsAre("_metrics.json", "best.pth", "epoch.0001.pth", "last.pth"));
  save_one(again, 4, 0.2);
  EXPECT_EQ(epoch_of(again.best_path()), 4);
  EXPECT_THAT(files(folder / "b"),
              ElementsAre("_metrics.json", "best.pth", "epoch.0004.pth", "last.pth"));
}

TEST(Store, ABestFileOfAnotherEpochGetsNoOtherName) {
  TemporaryDirectory folder;
  Store store({.folder = folder.path()});
  save_epochs(store, {0.3});
  const StateDict first = store.state();
  save_epochs(store, {0.2});  // epoch 1 again, with another result
  fs::remove(folder / "epoch.0001.pth");
  Store again({.folder = folder.path()});
  again.load_state(first, by_loss);
  EXPECT_TRUE(again.best().empty());
  EXPECT_FALSE(fs::exists(folder / "epoch.0001.pth"));
}

TEST(Store, AfterAStepBackItKeepsNoFileOfTheOtherFuture) {
  TemporaryDirectory folder;
  Store store({.folder = folder.path(), .keep_best = 2});
  save_epochs(store, {0.5, 0.3, 0.4});
  Store again({.folder = folder.path(), .keep_best = 2});
  again.load_state(load(folder / "epoch.0002.pth").get<StateDict>("store"), by_loss);
  const std::vector<std::string> before = files(folder.path());
  EXPECT_THAT(before, ElementsAre("_metrics.json", "best.pth", "epoch.0002.pth", "epoch.0003.pth",
                                  "last.pth"))
      << "last.pth is of epoch 3 and lists them, until the next save replaces it";
  again.decide_last()(StateDict{{"epoch", 2}, {"store", again.state()}});
  EXPECT_THAT(files(folder.path()),
              ElementsAre("_metrics.json", "best.pth", "epoch.0002.pth", "last.pth"));
  const auto index = nlohmann::json::parse(read_file(folder / "_metrics.json"));
  EXPECT_EQ(index["last"]["epoch"], 2);
  ASSERT_EQ(index["kept"].size(), 1u);
  EXPECT_EQ(index["kept"][0]["checkpoint"], "epoch.0002.pth");
}

TEST(Store, AfterAStepBackToNothingTheBestIsGone) {
  TemporaryDirectory folder;
  Store store({.folder = folder.path()});
  const StateDict first = store.state();
  save_epochs(store, {0.5});
  Store again({.folder = folder.path()});
  again.load_state(first, by_loss);
  again.decide_last()(StateDict{{"epoch", 0}});
  EXPECT_THAT(files(folder.path()), ElementsAre("_metrics.json", "last.pth"));
}

// A run that may go back to a moment needs the files that were listed then.
TEST(Store, FilesThatAreNeededStay) {
  TemporaryDirectory folder;
  Store store({.folder = folder.path()});
  save_epochs(store, {0.5});
  store.need_listed();
  const StateDict point = store.state();
  save_epochs(store, {0.5, 0.4, 0.3});
  EXPECT_THAT(files(folder.path()), ElementsAre("_metrics.json", "best.pth", "epoch.0001.pth",
                                                "epoch.0003.pth", "last.pth"));

  Store again({.folder = folder.path()});
  again.load_state(point, by_loss);
  ASSERT_EQ(again.best().size(), 1u);
  EXPECT_EQ(epoch_of(*again.best_file()), 1);
  again.need_listed();
  EXPECT_EQ(epoch_of(store.best_path()), 3) << "last.pth of epoch 3 is still there";
  again.decide_last()(StateDict{{"epoch", 1}});
  EXPECT_THAT(files(folder.path()),
              ElementsAre("_metrics.json", "best.pth", "epoch.0001.pth", "last.pth"));
  EXPECT_EQ(epoch_of(again.best_path()), 1);

  again.decide_epoch({.epoch = 2, .score = 0.4})(StateDict{{"epoch", 2}});
  EXPECT_THAT(files(folder.path()), ElementsAre("_metrics.json", "best.pth", "epoch.0001.pth",
                                                "epoch.0002.pth", "last.pth"));
  again.need_nothing();
  EXPECT_THAT(files(folder.path()),
              ElementsAre("_metrics.json", "best.pth", "epoch.0002.pth", "last.pth"));
}

// The process is killed while the file is needed. Its name does not say that it is a checkpoint.
TEST(Store, FilesThatWereNeededGoAfterAResume) {
  TemporaryDirectory folder;
  Store store({.folder = folder.path()});
  const auto save = [](Store& to, std::int64_t epoch, double score) {
    to.decide_epoch({.epoch = epoch, .score = score, .path = fmt::format("model.{}.pth", epoch)})(
        StateDict{{"epoch", epoch}});
  };
  save(store, 1, 0.5);
  store.need_listed();
  save(store, 2, 0.4);
  EXPECT_THAT(files(folder.path()),
              ElementsAre("_metrics.json", "best.pth", "last.pth", "model.1.pth", "model.2.pth"));
  Store resumed({.folder = folder.path()});
  resumed.load_state(store.state(), [](auto...) { return 0.4; });
  save(resumed, 3, 0.6);
  EXPECT_THAT(files(folder.path()),
              ElementsAre("_metrics.json", "best.pth", "last.pth", "model.2.pth"));
}

// The run ends because an epoch cannot be written: its name is that of a folder.
TEST(Store, AfterAWriteThatFailedTheFilesOfLastStay) {
  TemporaryDirectory folder;
  Store store({.folder = folder.path()});
  save_epochs(store, {0.5});
  store.need_listed();
  save_one(store, 2, 0.4);
  EXPECT_TRUE(fs::exists(folder / "epoch.0001.pth"));
  store.need_listed();
  EXPECT_FALSE(fs::exists(folder / "epoch.0001.pth")) << "the point after it does not need it";

  fs::create_directory(folder / "epoch.0003.pth");
  EXPECT_THROW(save_one(store, 3, 0.3), Error);
  store.need_nothing();
  EXPECT_EQ(epoch_of(store.last_path()), 2);
  EXPECT_EQ(epoch_of(folder / "epoch.0002.pth"), 2);
  EXPECT_EQ(epoch_of(store.best_path()), 2);
  const auto listed = nlohmann::json::parse(read_file(folder / "_metrics.json"));
  ASSERT_EQ(listed["kept"].size(), 1U);
  EXPECT_EQ(listed["kept"][0]["checkpoint"], "epoch.0002.pth");

  fs::remove(folder / "epoch.0003.pth");
  Store resumed({.folder = folder.path()});
  resumed.load_state(load(store.last_path()).get<StateDict>("store"), by_loss);
  ASSERT_EQ(resumed.best().size(), 1U);
  EXPECT_EQ(resumed.best()[0].epoch, 2);
  save_one(resumed, 3, 0.3);
  EXPECT_THAT(files(folder.path()),
              ElementsAre("_metrics.json", "best.pth", "epoch.0003.pth", "last.pth"));
}

// The epoch before was written, so the index names the file that only the point needed.
TEST(Store, AfterAWriteThatFailedFilesOfAPointGo) {
  TemporaryDirectory folder;
  Store store({.folder = folder.path()});
  save_epochs(store, {0.5});
  store.need_listed();
  save_one(store, 2, 0.4);
  fs::create_directory(folder / "epoch.0003.pth");
  EXPECT_THROW(save_one(store, 3, 0.3), Error);
  fs::remove(folder / "epoch.0003.pth");
  store.need_nothing();
  EXPECT_THAT(files(folder.path()),
              ElementsAre("_metrics.json", "best.pth", "epoch.0002.pth", "last.pth"));
}

TEST(Store, ScoresAnewWhenSomethingElseIsBest) {
  TemporaryDirectory folder;
  Store store({.folder = folder.path(), .keep_best = 2});
  save_epochs(store, {0.5, 0.3});
  Store again({.folder = folder.path(), .keep_best = 2, .better = Better::kLarger});
  again.load_state(load(folder / "last.pth").get<StateDict>("store"), by_loss);
  EXPECT_EQ(again.best().front().epoch, 1);
  EXPECT_EQ(epoch_of(*again.best_file()), 1);
  again.decide_last()(StateDict{{"epoch", 2}});
  EXPECT_EQ(epoch_of(again.best_path()), 1);
}

TEST(Store, ASmallGainDoesNotChangeTheBest) {
  TemporaryDirectory folder;
  Store store({.folder = folder.path(), .keep_best = 2, .min_delta = 0.1});
  save_epochs(store, {0.5, 0.45, 0.48});
  EXPECT_EQ(epoch_of(store.best_path()), 1);
  EXPECT_THAT(files(folder.path()), ElementsAre("_metrics.json", "best.pth", "epoch.0001.pth",
                                                "epoch.0002.pth", "last.pth"));
  Store again({.folder = folder.path(), .keep_best = 2, .min_delta = 0.1});
  again.load_state(load(folder / "last.pth").get<StateDict>("store"), by_loss);
  EXPECT_EQ(again.best_epoch()->epoch, 1) << "also after a resume";
  again.decide_epoch({.epoch = 4, .score = 0.39})(StateDict{{"epoch", 4}});
  EXPECT_EQ(epoch_of(again.best_path()), 4);
  EXPECT_EQ(again.best()[1].epoch, 2) << "the others are in the order of their scores";
}

TEST(Store, KeepsAllAndListsThem) {
  TemporaryDirectory folder;
  Store store({.folder = folder.path(), .keep_best = 1, .keep_all = true});
  save_epochs(store, {0.5, std::numeric_limits<double>::quiet_NaN(), 0.3});
  EXPECT_EQ(epoch_of(store.best_path()), 3);
  store.decide_step({.epoch = 4, .step = 70})(StateDict{{"epoch", 3}, {"store", store.state()}});
  EXPECT_THAT(files(folder.path()),
              ElementsAre("_metrics.json", "best.pth", "epoch.0001.pth", "epoch.0002.pth",
                          "epoch.0003.pth", "last.pth", "step.00000070.pth"));
  const auto index = nlohmann::json::parse(read_file(folder / "_metrics.json"));
  ASSERT_EQ(index["kept"].size(), 4u);
  EXPECT_EQ(index["kept"][3]["step"], 70);

  // A resume from epoch 3 goes back before the step.
  Store again({.folder = folder.path(), .keep_all = true});
  again.load_state(load(folder / "epoch.0003.pth").get<StateDict>("store"), by_loss);
  EXPECT_EQ(again.best().size(), 3u);
  again.decide_last()(StateDict{{"epoch", std::int64_t{3}}});
  EXPECT_FALSE(fs::exists(folder / "step.00000070.pth"));
  EXPECT_TRUE(fs::exists(folder / "epoch.0002.pth"));
}

TEST(Store, FilesWithOtherNamesAreKeptAndRemovedLikeTheUsualOnes) {
  TemporaryDirectory folder;
  Store store({.folder = folder.path()});
  const auto save_named = [&](Store& to, std::int64_t epoch, double score, const char* name) {
    const auto write = to.decide_epoch(
        {.epoch = epoch, .score = score, .metrics = {{"valid", {{"loss", score}}}}, .path = name});
    write(StateDict{{"epoch", epoch}, {"store", to.state()}});
  };
  save_named(store, 1, 0.5, "a.1.pth");
  save_named(store, 2, 0.4, "a.2.pth");
  EXPECT_THAT(files(folder.path()),
              ElementsAre("_metrics.json", "a.2.pth", "best.pth", "last.pth"));
  const StateDict second = store.state();
  save_named(store, 3, 0.3, "a.3.pth");
  fs::copy_file(folder / "a.3.pth", folder / "mine.pth");
  Store again({.folder = folder.path()});
  again.load_state(second, by_loss);
  EXPECT_TRUE(again.best().empty()) << "its file is gone";
  save_named(again, 3, 0.6, "a.3-again.pth");
  EXPECT_THAT(files(folder.path()),
              ElementsAre("_metrics.json", "a.3-again.pth", "best.pth", "last.pth", "mine.pth"))
      << "files of the user stay";
  EXPECT_EQ(load_by_name("a.3-again", folder.path()).state.get<std::int64_t>("epoch"), 3);
  fs::resize_file(folder / "last.pth", 10);
  const auto before = set_warning_handler([](const std::string&) {});
  EXPECT_EQ(load_by_name("last", folder.path()).path, folder / "a.3-again.pth");
  set_warning_handler(before);
}

TEST(LoadByName, FindsPathsAndNames) {
  TemporaryDirectory folder;
  Store store({.folder = folder.path()});
  save_epochs(store, {0.5, 0.9});
  EXPECT_EQ(load_by_name("best", folder.path()).state.get<std::int64_t>("epoch"), 1);
  EXPECT_EQ(load_by_name("last", folder.path()).state.get<std::int64_t>("epoch"), 2);
  EXPECT_EQ(load_by_name("epoch.0001", folder.path()).state.get<std::int64_t>("epoch"), 1);
  EXPECT_EQ(load_by_name(store.best_path().string(), {}).state.get<std::int64_t>("epoch"), 1);
  EXPECT_THROW(load_by_name("bset", folder.path()), CheckpointError);
  EXPECT_THROW(load_by_name("last", {}), CheckpointError);
}

TEST(LoadByName, ADamagedOneIsNamedAndTheOneBeforeIsUsed) {
  TemporaryDirectory folder;
  Store store({.folder = folder.path(), .keep_best = 3});
  save_epochs(store, {0.5, 0.3, 0.4});
  std::vector<std::string> warnings;
  const auto previous =
      set_warning_handler([&](const std::string& text) { warnings.push_back(text); });
  for (const char* victim : {"last.pth", "epoch.0003.pth"}) {
    fs::resize_file(folder / victim, fs::file_size(folder / victim) / 2);
  }
  const auto loaded = load_by_name("last", folder.path());
  set_warning_handler(previous);
  EXPECT_EQ(loaded.state.get<std::int64_t>("epoch"), 2);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("last.pth"));
  EXPECT_THAT(warnings[0], HasSubstr("epoch.0002.pth"));
}

TEST(LoadByName, AnyFailureToReadMakesItUseTheOneBefore) {
  TemporaryDirectory folder;
  Store store({.folder = folder.path(), .keep_best = 1});
  save_epochs(store, {0.5});
  // The checksum is not text. The error used to have no file name, also if memory was not enough.
  write_file_atomically(folder / "last.pth", to_pickle({{"epoch", 1}, {"checksum", 1}}));
  std::string warning;
  const auto before = set_warning_handler([&](const std::string& text) { warning = text; });
  const Loaded loaded = load_by_name("last", folder.path());
  set_warning_handler(before);
  EXPECT_EQ(loaded.path, folder / "epoch.0001.pth");
  EXPECT_THAT(warning, HasSubstr("last.pth: checksum"));
}

TEST(LoadByName, WithNothingWholeItSaysWhatIsWrongWithEach) {
  TemporaryDirectory folder;
  std::ofstream(folder / "last.pth") << "x";
  std::ofstream(folder / "epoch.0001.pth") << "y";
  try {
    load_by_name("last", folder.path());
    FAIL();
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), HasSubstr("last.pth"));
    EXPECT_THAT(error.what(), HasSubstr("epoch.0001.pth"));
  }
}

// Python changes a checkpoint and saves it again, without our checksum.
TEST(LoadByName, TakesACheckpointThatPythonSavedAgain) {
  const TemporaryDirectory folder;
  const StateDict weights{{"weight", torch::ones({2})}};
  const auto write = [&](const char* name, const StateDict& state) {
    const auto path = folder.path() / name;
    write_file_atomically(path, [&](const WriteBytes& bytes) { write_pickle(state, bytes); });
    return path.string();
  };
  const auto changed = write("changed.pth", {{"model_state_dict", weights},
                                             {"run", StateDict{{"epoch", std::int64_t{3}}}}});
  testing::internal::CaptureStderr();
  EXPECT_TRUE(load_by_name(changed, std::nullopt).state.contains("run"));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("has no checksum"));
  save(folder / "last.pth", {{"epoch", 1}});
  testing::internal::CaptureStderr();
  EXPECT_EQ(load_by_name("changed", folder.path()).path, changed) << "by its name, too";
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("has no checksum"));
  const auto alone = write("alone.pth", {{"model_state_dict", weights}});
  try {
    load_by_name(alone, std::nullopt);
    FAIL() << "expected an error";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), HasSubstr("set weights instead of resume"));
  }
}

TEST(LoadByName, AFileWithADamagedNameOfItsChecksumIsDamaged) {
  const TemporaryDirectory folder;
  const StateDict state{{"model_state_dict", StateDict{{"weight", torch::ones({2})}}},
                        {"run", StateDict{{"epoch", 1}}}};
  save(folder / "epoch.0001.pth", state);
  save(folder / "last.pth", state);
  std::string bytes = read_file(folder / "last.pth");
  bytes.at(bytes.find(kChecksumKey)) ^= 1;
  write_file_atomically(folder / "last.pth", bytes);
  std::string warning;
  const auto before = set_warning_handler([&](const std::string& text) { warning = text; });
  EXPECT_EQ(load_by_name("last", folder.path()).path, folder / "epoch.0001.pth");
  set_warning_handler(before);
  EXPECT_THAT(warning, HasSubstr("last.pth: damaged: its last entry is 'bhecksum'"));
}

TEST(LoadByName, AnOldChecksumInAFileOfPythonIsNamed) {
  const TemporaryDirectory folder;
  StateDict state{{"run", StateDict{{"epoch", 3}}}, {"model_state_dict", StateDict()}};
  const std::string old = content_hash(state);
  state.set("run", StateDict{{"epoch", 4}});
  state.set(kChecksumKey, old);
  const fs::path path = folder / "python.pth";
  write_file_atomically(path, to_pickle(state));
  try {
    load_by_name(path.string(), std::nullopt);
    FAIL() << "expected an error";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), HasSubstr("remove the entry 'checksum'"));
  }
}

}  // namespace
}  // namespace lockstep::checkpoint

// Every call of checkpointing to the system fails once.
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/file.h"
#include "lockstep/base/warn.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/checkpoint/store.h"
#include "tests/support/io_faults.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

StateDict content_of(std::int64_t epoch) {
  return {{"epoch", epoch}, {"weights", torch::full({1000}, static_cast<double>(epoch))}};
}

void save_scored(Store& store, std::int64_t epoch, double score) {
  const Store::Write write = store.decide_epoch(
      {.epoch = epoch, .score = score, .metrics = {{"valid", {{"loss", score}}}}, .path = {}});
  StateDict content = content_of(epoch);
  content.set("store", store.state());
  write(content);
}

std::optional<double> loss_of(std::int64_t, const EpochMetrics& metrics) {
  return metrics.at("valid").at("loss");
}

class StoreFaults : public ::testing::Test {
 protected:
  StoreFaults()
      : previous_(set_warning_handler([this](const std::string& text) { warned_ += text; })) {}
  ~StoreFaults() override { set_warning_handler(previous_); }

  IoFaultPlan plan() const { return {.files = folder_.path().string()}; }

  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      found.push_back(entry.path().filename().string());
    }
    std::ranges::sort(found);
    return found;
  }

  void expect_named(const FaultedRun& run) const {
    EXPECT_FALSE(run.is_harmless()) << run.error;
    EXPECT_THAT(run.error, HasSubstr(folder_.path().string()));
    EXPECT_THAT(run.error, HasSubstr(std::strerror(run.fault.error)));
  }

  // No temporary file, and every checkpoint can be loaded by its name.
  void expect_whole() {
    warned_ = "";
    for (const std::string& name : names()) {
      EXPECT_THAT(name, Not(HasSubstr(".tmp.")));
      if (!name.ends_with(".pth")) continue;
      EXPECT_NO_THROW(load_by_name(name, folder_.path())) << name;
    }
    EXPECT_EQ(warned_, "");
  }

  std::int64_t epoch_of(const std::string& name) const {
    return load_by_name(name, folder_.path()).state.get<std::int64_t>("epoch");
  }

  FolderInMemory folder_;
  std::string warned_;

 private:
  WarningHandler previous_;
};

TEST_F(StoreFaults, ACheckpointIsReplacedWholeOrNotAtAll) {
  const fs::path path = folder_ / "last.pth";
  const auto runs = fail_each_call({.plan = plan(),
                                    .prepare = [&] { save(path, content_of(1)); },
                                    .operation = [&] { save(path, content_of(2)); },
                                    .check =
                                        [&](const FaultedRun& run) {
                                          ASSERT_TRUE(run.struck);
                                          expect_whole();
                                          EXPECT_EQ(load(path).get<std::int64_t>("epoch"),
                                                    run.error.empty() ? 2 : 1);
                                          if (!run.error.empty()) expect_named(run);
                                        }});
  EXPECT_GE(runs, 15);
}

// A new process loads the folder that the failed save left.
TEST_F(StoreFaults, AResumeFindsAWholeFolderAfterAnyFault) {
  fail_each_call({.plan = plan(),
                  .prepare =
                      [&] {
                        for (const std::string& name : names()) fs::remove(folder_ / name);
                        Store store({.folder = folder_.path(), .keep_best = 2});
                        save_scored(store, 1, 0.5);
                        save_scored(store, 2, 0.6);
                      },
                  .operation =
                      [&] {
                        Store store({.folder = folder_.path(), .keep_best = 2});
                        store.load_state(
                            load_by_name("last", folder_.path()).state.get<StateDict>("store"),
                            loss_of);
                        save_scored(store, 3, 0.3);
                        store.decide_last()(content_of(4));
                      },
                  .check =
                      [&](const FaultedRun& run) {
                        ASSERT_TRUE(run.struck);
                        if (!run.error.empty()) expect_named(run);
                        expect_whole();
                        const Loaded last = load_by_name("last", folder_.path());
                        if (run.error.empty()) {
                          EXPECT_EQ(last.state.get<std::int64_t>("epoch"), 4);
                        }
                        if (!last.state.contains("store")) return;  // of epoch 4
                        Store store({.folder = folder_.path(), .keep_best = 2});
                        store.load_state(last.state.get<StateDict>("store"), loss_of);
                        ASSERT_FALSE(store.best().empty());
                        const std::int64_t best = store.best().front().epoch;
                        EXPECT_EQ(load(*store.best_file()).get<std::int64_t>("epoch"), best);
                        // The first save makes best.pth fit.
                        store.decide_last()(content_of(5));
                        EXPECT_EQ(epoch_of("best"), best);
                        expect_whole();
                      }});
}

// The newest checkpoint that can be read is used.
TEST_F(StoreFaults, ACheckpointThatCannotBeReadIsNamedAndTheOneBeforeIsUsed) {
  Store store({.folder = folder_.path()});
  save_scored(store, 1, 0.5);
  store.decide_last()(content_of(2));
  Loaded loaded;
  fail_each_call({.plan = plan(),
                  .prepare = [&] { warned_ = ""; },
                  .operation = [&] { loaded = load_by_name("last", folder_.path()); },
                  .check =
                      [&](const FaultedRun& run) {
                        EXPECT_EQ(run.error, "");
                        const auto epoch = loaded.state.get<std::int64_t>("epoch");
                        EXPECT_EQ(epoch, run.is_harmless() ? 2 : 1);
                        EXPECT_EQ(warned_.empty(), epoch == 2);
                        if (epoch == 1) {
                          EXPECT_THAT(warned_, HasSubstr("last.pth"));
                        }
                      }});
}

}  // namespace
}  // namespace lockstep::checkpoint

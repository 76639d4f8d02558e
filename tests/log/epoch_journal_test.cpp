#include "lockstep/log/epoch_journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

Record record(const std::string& loader, double value) {
  return {Scope::kEpoch, loader, {.epoch = 3}, {{"value", value}}};
}

std::vector<double> values(const EpochJournal& journal) {
  std::vector<double> found;
  for (const auto& entry : journal.entries()) found.push_back(entry.record.metrics.at("value"));
  return found;
}

TEST(EpochJournal, KeepsTheRecordsOfTheEpochAndNoBatches) {
  EpochJournal journal;
  journal.log_metrics(record("mine", 1));
  journal.begin_epoch();
  journal.set_start(7);
  journal.log_metrics(record("mine", 2));
  journal.set_start(std::nullopt);
  journal.log_metrics({Scope::kBatch, "train", {.epoch = 3}, {{"value", 3.0}}});
  journal.log_metrics(record("train", 4));
  EXPECT_THAT(values(journal), testing::ElementsAre(2, 4));
  EXPECT_EQ(journal.entries()[0].start, 7);
  EXPECT_EQ(journal.entries()[1].start, std::nullopt);
}

// The hooks of starts are called again, and must not log twice.
TEST(EpochJournal, StartsBeforeTheSnapshotAreNotKeptTwice) {
  EpochJournal before;
  before.set_start(7);
  before.log_metrics(record("mine", 1));
  before.set_start(std::nullopt);
  before.log_metrics(record("mine", 2));

  EpochJournal journal;
  journal.restore(before.entries(), 7);
  for (const std::int64_t start : {0, 7, 8}) {
    journal.set_start(start);
    journal.log_metrics(record("mine", 10.0 + static_cast<double>(start)));
  }
  journal.set_start(std::nullopt);
  journal.log_metrics(record("mine", 3));
  EXPECT_THAT(values(journal), testing::ElementsAre(1, 2, 18, 3));
}

}  // namespace
}  // namespace lockstep

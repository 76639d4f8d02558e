#include "lockstep/log/summary.h"

#include <cmath>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/file.h"

namespace lockstep {
namespace {

nlohmann::json written(const RunSummary& summary) {
  TemporaryDirectory folder;
  write_summary(folder / "summary.json", summary);
  return nlohmann::json::parse(read_file(folder / "summary.json"));
}

TEST(Summary, HoldsTheBestAndTheLastEpoch) {
  const auto json = written({
      .best = EpochSummary{.epoch = 3,
                           .metrics = {{"valid", {{"loss", 0.1 + 0.2}}}, {"train", {{"loss", 1}}}},
                           .checkpoint = "checkpoints/best.pth"},
      .last = EpochSummary{.epoch = 8, .metrics = {{"valid", {{"loss", 0.5}}}}},
      .train_samples_per_second = 8123.5,
      .seconds = 61.25,
      .workers = 2,
      .shards = 4,
      .global_batch_size = 128,
      .weights_hash = "00ff",
      .precision = "bf16",
      .skipped_steps = 3,
  });
  EXPECT_EQ(json["best"]["epoch"], 3);
  EXPECT_EQ(json["best"]["metrics"]["valid"]["loss"], 0.1 + 0.2);
  EXPECT_EQ(json["best"]["metrics"]["train"]["loss"], 1.0);
  EXPECT_EQ(json["best"]["checkpoint"], "checkpoints/best.pth");
  EXPECT_EQ(json["last"]["epoch"], 8);
  EXPECT_TRUE(json["last"]["checkpoint"].is_null());
  EXPECT_EQ(json["train_samples_per_second"], 8123.5);
  EXPECT_EQ(json["seconds"], 61.25);
  EXPECT_EQ(json["workers"], 2);
  EXPECT_EQ(json["shards"], 4);
  EXPECT_EQ(json["global_batch_size"], 128);
  EXPECT_EQ(json["weights_hash"], "00ff");
  EXPECT_EQ(json["precision"], "bf16");
  EXPECT_EQ(json["skipped_steps"], 3);
}

TEST(Summary, WhatIsNotThereOrNoNumberIsNull) {
  const auto json =
      written({.last = EpochSummary{.epoch = 1,
                                    .metrics = {{"t", {{"a", std::nan("")}, {"b", INFINITY}}}}}});
  EXPECT_TRUE(json["best"].is_null());
  EXPECT_TRUE(json["last"]["metrics"]["t"]["a"].is_null());
  EXPECT_TRUE(json["last"]["metrics"]["t"]["b"].is_null());
}

TEST(Summary, APathThatIsNotUtf8StillMakesValidJson) {
  const auto json = written({.last = EpochSummary{.epoch = 1, .checkpoint = "caf\xe9.pth"}});
  EXPECT_EQ(json["last"]["checkpoint"], "caf\ufffd.pth");
}

}  // namespace
}  // namespace lockstep

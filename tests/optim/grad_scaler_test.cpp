#include "lockstep/optim/grad_scaler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"

namespace lockstep::optim {
namespace {

using ::testing::HasSubstr;

template <typename F>
std::string message_from(const F& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// scripts/goldens/grad_scaler.py. All numbers are those of PyTorch, to the bit.
TEST(GradScaler, FollowsPyTorch) {
  const auto golden =
      nlohmann::json::parse(read_file(std::string(LOCKSTEP_GOLDENS) + "/grad_scaler.json"));
  ASSERT_EQ(golden.at("cases").size(), 5U);
  for (const auto& one : golden.at("cases")) {
    SCOPED_TRACE(one.at("options").dump());
    const auto& given = one.at("options");
    GradScalerOptions options;
    options.init_scale = given.value("init_scale", options.init_scale);
    options.growth_factor = given.value("growth_factor", options.growth_factor);
    options.backoff_factor = given.value("backoff_factor", options.backoff_factor);
    options.growth_interval = given.value("growth_interval", options.growth_interval);
    GradScaler scaler(options);
    std::int64_t skipped = 0;
    for (std::size_t i = 0; i < one.at("batches").size(); ++i) {
      for (const char update : one.at("batches")[i].get<std::string>()) {
        scaler.note_update(update != '.');
        if (update != '.') ++skipped;
      }
      scaler.adjust();
      EXPECT_EQ(scaler.scale(), one.at("scales")[i].get<double>()) << "batch " << i;
      EXPECT_EQ(scaler.state().get<std::int64_t>("_growth_tracker"),
                one.at("trackers")[i].get<std::int64_t>())
          << "batch " << i;
    }
    EXPECT_EQ(scaler.skipped(), skipped);
    for (const auto& [key, value] : one.at("state").items()) {
      ASSERT_TRUE(scaler.state().contains(key)) << key << " of PyTorch's state_dict";
    }
  }
}

TEST(GradScaler, WithoutAnUpdateNothingChanges) {
  GradScaler scaler({.growth_interval = 2});
  for (int i = 0; i < 5; ++i) scaler.adjust();
  EXPECT_EQ(scaler.scale(), 65536);
  scaler.note_update(false);
  scaler.adjust();
  scaler.adjust();
  EXPECT_EQ(scaler.scale(), 65536);
  scaler.note_update(false);
  scaler.adjust();
  EXPECT_EQ(scaler.scale(), 131072);
}

TEST(GradScaler, GoesOnFromItsState) {
  GradScaler first({.growth_interval = 3});
  const auto batch = [](GradScaler& scaler, bool skipped) {
    scaler.note_update(skipped);
    scaler.adjust();
  };
  for (const bool skipped : {true, false, false}) batch(first, skipped);
  GradScaler second;  // the numbers of the checkpoint count
  second.load_state(first.state());
  EXPECT_EQ(second.scale(), 32768);
  EXPECT_EQ(second.skipped(), 1);
  batch(first, false);
  batch(second, false);
  EXPECT_EQ(first.scale(), 65536);
  EXPECT_EQ(second.scale(), 65536);
  StateDict damaged = first.state();
  damaged.set("scale", -1.0);
  EXPECT_THAT(message_from([&] { second.load_state(damaged); }),
              HasSubstr("scaler_state_dict: grad_scaler: init_scale"));
}

TEST(GradScaler, StopsIfNoGradientIsEverFinite) {
  GradScaler scaler;
  const std::string message = message_from([&] {
    for (int i = 0; i < 100; ++i) {
      scaler.note_update(true);
      scaler.adjust();
    }
  });
  EXPECT_THAT(message, HasSubstr("47 updates were skipped"));
  EXPECT_THAT(message, HasSubstr("bf16 or fp32"));
}

TEST(GradScaler, RefusesNumbersThatMakeNoSense) {
  EXPECT_THAT(message_from([] { GradScaler({.init_scale = 0}); }), HasSubstr("init_scale"));
  EXPECT_THAT(message_from([] { GradScaler({.init_scale = 1e39}); }), HasSubstr("init_scale"));
  EXPECT_THAT(message_from([] { GradScaler({.growth_factor = 1}); }), HasSubstr("more than 1"));
  EXPECT_THAT(message_from([] { GradScaler({.backoff_factor = 1}); }), HasSubstr("backoff_factor"));
  EXPECT_THAT(message_from([] { GradScaler({.growth_interval = 0}); }), HasSubstr("1 or more"));
}

}  // namespace
}  // namespace lockstep::optim

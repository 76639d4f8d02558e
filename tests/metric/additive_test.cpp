#include "lockstep/metric/additive.h"

#include "tests/metric/golden.h"

namespace lockstep::metric {
namespace {

TEST(Additive, MeanIsWeightedByTheSamples) {
  Additive loss({.name = "loss"});
  loss.update(1.0, 32);
  loss.update(4.0, 16);
  const Metrics metrics = loss.compute();
  EXPECT_EQ(metrics.at("loss"), 2);
  // 32 samples are 1 away, 16 are 2 away
  EXPECT_DOUBLE_EQ(metrics.at("loss/std"), std::sqrt((32 * 1.0 + 16 * 4.0) / 47));
}

TEST(Additive, NamesAreKnownBeforehand) {
  const Additive loss({.name = "loss"});
  EXPECT_THAT(loss.names(), testing::ElementsAre("loss", "loss/std"));
  expect_names_match(loss);
}

TEST(Additive, NothingIsNotANumber) {
  Additive loss({.name = "loss"});
  loss.update(1, 1);
  loss.reset();
  for (const auto& [name, value] : loss.compute()) EXPECT_TRUE(std::isnan(value)) << name;
}

TEST(Additive, MergesToTheBit) {
  const auto& losses = golden().at("moments").at(0);
  expect_merges_exactly(
      [] { return Additive({.name = "loss"}); }, static_cast<int>(losses.at("values").size()),
      [&](Additive& loss, int i) { loss.update(losses.at("values")[i], losses.at("weights")[i]); });
}

TEST(Additive, WantsAName) {
  EXPECT_THROW(Additive({.name = ""}), ConfigError);
}

}  // namespace
}  // namespace lockstep::metric

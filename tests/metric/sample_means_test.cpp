#include "lockstep/metric/sample_means.h"

#include "lockstep/base/error.h"
#include "tests/metric/golden.h"

namespace lockstep::metric {
namespace {

// Targets are the values of one mean; their halves those of another one.
class Halves final : public SampleMeans {
 public:
  Halves() : SampleMeans({"whole", "half"}, Better::kSmaller) {}
  void update(const torch::Tensor&, const torch::Tensor& targets) override {
    const torch::Tensor values = targets.to(torch::kFloat64).contiguous();
    const torch::Tensor halves = values / 2;
    const auto count = static_cast<std::size_t>(values.numel());
    add(0, {values.data_ptr<double>(), count});
    add(1, {halves.data_ptr<double>(), count});
  }
  using SampleMeans::add_mean;
  using SampleMeans::add_share;
};

TEST(SampleMeans, AreMeansOverSamplesWithTheDeviationOfBatches) {
  Halves means;
  means.update({}, torch::tensor({1.0, 2.0, 3.0}));
  means.update({}, torch::tensor({6.0}));
  const Metrics metrics = means.compute();
  EXPECT_EQ(metrics.at("whole"), 3);
  EXPECT_EQ(metrics.at("half"), 1.5);
  EXPECT_DOUBLE_EQ(metrics.at("whole/std"), std::sqrt((3 * 1 + 9) / 3.0));
  expect_names_match(means);
  EXPECT_EQ(means.better("half"), Better::kSmaller);
  EXPECT_EQ(means.better("half/std"), std::nullopt);
}

TEST(SampleMeans, SharesAndMeansCountTheirSamples) {
  Halves means;
  means.add_share(0, 1, 3);
  means.add_share(0, 2, 3);
  means.add_share(0, 0, 0);
  means.add_mean(1, 5, 3);
  means.add_mean(1, 1, 1);
  means.add_mean(1, 7, 0);
  EXPECT_EQ(means.compute().at("whole"), 0.5);
  EXPECT_EQ(means.compute().at("half"), 4);
}

TEST(SampleMeans, NothingIsNotANumber) {
  Halves means;
  means.update({}, torch::tensor({1.0}));
  means.reset();
  means.update({}, torch::empty({0}));
  for (const auto& [name, value] : means.compute()) EXPECT_TRUE(std::isnan(value)) << name;
}

TEST(SampleMeans, MergesToTheBit) {
  torch::manual_seed(3);
  const torch::Tensor targets = torch::randn({100}, torch::kFloat64) * 1e3;
  const Batches batches{targets, targets, 9};
  expect_merges_exactly([] { return Halves(); }, batches.size(), batches);
  expect_batches_do_not_matter([] { return Halves(); }, targets, targets);
}

TEST(SampleMeans, StateOfOtherNamesIsRefused) {
  Halves means;
  EXPECT_THAT(
      [&] {
        means.load_state({{"whole", StateDict()}});
      },
      testing::ThrowsMessage<CheckpointError>(
          testing::HasSubstr("metrics: expected [whole, half], found [whole]")));
}

}  // namespace
}  // namespace lockstep::metric

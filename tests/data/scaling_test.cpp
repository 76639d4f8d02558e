#include "lockstep/data/scaling.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/data/subset.h"
#include "lockstep/data/tensor_dataset.h"

namespace lockstep::data {
namespace {

using ::testing::HasSubstr;

const ChannelScaling kTwoChannels{
    .kind = Normalization::kStandard, .shift = {1, 10}, .scale = {2, 4}};

TEST(Scaling, IsByChannel) {
  const torch::Tensor batch = torch::tensor({{{1.F, 3.F}, {10.F, 18.F}}});  // [1, 2, 2]
  const torch::Tensor scaled = kTwoChannels.apply(batch);
  EXPECT_TRUE(scaled.equal(torch::tensor({{{0.F, 1.F}, {0.F, 2.F}}})));
  EXPECT_TRUE(kTwoChannels.undo(scaled).equal(batch));
  EXPECT_TRUE(kTwoChannels.undo(scaled.flatten(1)).equal(batch.flatten(1))) << "a row per sample";
  EXPECT_EQ(batch[0][0][1].item<float>(), 3) << "the batch itself is not changed";
}

TEST(Scaling, ALogarithmIsUndoneToo) {
  const ChannelScaling scaling{.kind = Normalization::kLog, .shift = {1}, .scale = {0.5}};
  const torch::Tensor batch = torch::tensor({1e-8, 1.0, 1e8}).reshape({1, 1, 3});
  const torch::Tensor scaled = scaling.apply(batch);
  EXPECT_FLOAT_EQ(scaled[0][0][1].item<float>(), -2) << "(ln 1 - 1) / 0.5";
  EXPECT_TRUE(torch::allclose(scaling.undo(scaled), batch.to(torch::kFloat32), 1e-5));
  EXPECT_THROW(scaling.apply(torch::zeros({1, 1, 3})), DataError);
}

// A sample has the same bits, alone and in a large batch.
TEST(Scaling, AValueDoesNotDependOnTheRestOfTheBatch) {
  torch::manual_seed(1);
  const torch::Tensor batch = torch::rand({7, 2, 13}) + 0.1;
  for (const auto kind : {Normalization::kStandard, Normalization::kLog}) {
    const ChannelScaling scaling{.kind = kind, .shift = {0.3, 0.1}, .scale = {0.7, 0.9}};
    const torch::Tensor whole = scaling.apply(batch);
    for (std::int64_t i = 0; i < 7; ++i) {
      EXPECT_TRUE(scaling.apply(batch.narrow(0, i, 1)).equal(whole.narrow(0, i, 1))) << i;
    }
  }
}

TEST(Scaling, PredictionsKeepTheirType) {
  EXPECT_EQ(kTwoChannels.undo(torch::ones({3, 4}, torch::kFloat64)).scalar_type(), torch::kFloat64);
  EXPECT_EQ(kTwoChannels.undo(torch::ones({3, 4}, torch::kBFloat16)).scalar_type(),
            torch::kBFloat16);
}

// The units of a file may be too large for float16.
TEST(Scaling, PredictionsOfHalfPrecisionDoNotOverflow) {
  const ChannelScaling scaling{.kind = Normalization::kStandard, .shift = {1e6}, .scale = {2e5}};
  const torch::Tensor rows = torch::tensor({{1.0F}, {-2.0F}}).to(torch::kFloat16);
  EXPECT_TRUE(scaling.undo(rows).equal(torch::tensor({{1.2e6F}, {6e5F}})));
  EXPECT_EQ(scaling.undo(rows.narrow(0, 0, 0)).scalar_type(), torch::kFloat32);
}

TEST(Scaling, AnotherNumberOfChannelsIsNamed) {
  const auto error = [](auto&& work) {
    try {
      work();
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(error([] {
                kTwoChannels.apply(torch::ones({4, 3, 5}));
              }),
              HasSubstr("expected [B, 2, …] as the statistics have, got Float [4, 3, 5]"));
  EXPECT_THAT(error([] { kTwoChannels.undo(torch::ones({4, 3})); }), HasSubstr("2 channels"));
}

TEST(Scaling, StatisticsThatMakeNoSenseAreRefused) {
  EXPECT_THROW((ChannelScaling{.kind = Normalization::kStandard}.check()), ConfigError);
  EXPECT_THROW((ChannelScaling{.shift = {1}, .scale = {1}}.check()), ConfigError);
  EXPECT_THROW((ChannelScaling{.kind = Normalization::kMinMax, .shift = {1}, .scale = {0}}.check()),
               ConfigError);
  EXPECT_THROW(
      (ChannelScaling{.kind = Normalization::kMinMax, .shift = {NAN}, .scale = {1}}.check()),
      ConfigError);
  EXPECT_NO_THROW(kTwoChannels.check());
  EXPECT_NO_THROW(ChannelScaling().check());
}

TEST(Scaling, HasNames) {
  for (const auto& [kind, name] : kNormalizationNames) EXPECT_EQ(normalization_of(name), kind);
  EXPECT_EQ(name_of(Normalization::kMinMax), "minmax");
  EXPECT_THROW(normalization_of("standart"), ConfigError);
  EXPECT_THAT(describe(Scaling{.features = kTwoChannels}),
              HasSubstr("features: standard shift [1, 10] scale [2, 4]"));
  EXPECT_EQ(describe(Scaling()), "none");
}

class Scaled : public ScaledDataset {
 public:
  std::int64_t size() const override { return 4; }
  Batch sample(std::int64_t index) const override {
    return {{"features", torch::full({2, 1}, static_cast<double>(index))}};
  }
  const Scaling& scaling() const override { return scaling_; }

 private:
  Scaling scaling_{.features = kTwoChannels};
};

TEST(Scaling, OfADataSetIsFoundInASubset) {
  const DatasetPtr scaled = std::make_shared<Scaled>();
  EXPECT_EQ(scaling_of(*scaled).features, kTwoChannels);
  const DatasetPtr some = std::make_shared<Subset>(scaled, std::vector<std::int64_t>{3, 1});
  EXPECT_EQ(scaling_of(*some).features, kTwoChannels);
  EXPECT_TRUE(scaling_of(TensorDataset(torch::ones({2, 1}), torch::ones({2}))).is_none());
}

}  // namespace
}  // namespace lockstep::data

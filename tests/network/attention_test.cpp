#include "lockstep/network/attention.h"

#include <cmath>

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace lockstep::network {
namespace {

TEST(Attention, IsTheWeightedMeanOfTheValuesInEachHead) {
  torch::manual_seed(1);
  const auto qkv = torch::randn({2, 5, 3 * 6});
  const auto output = attend(qkv, {.heads = 3});
  ASSERT_EQ(output.sizes(), torch::IntArrayRef({2, 5, 6}));
  for (std::int64_t sequence = 0; sequence < 2; ++sequence) {
    for (std::int64_t head = 0; head < 3; ++head) {
      const auto part = [&](std::int64_t which) {
        return qkv[sequence].narrow(1, 6 * which + 2 * head, 2);
      };
      const auto scores = part(0).mm(part(1).t()) / std::sqrt(2.0);
      EXPECT_TRUE(output[sequence]
                      .narrow(1, 2 * head, 2)
                      .allclose(scores.softmax(1).mm(part(2)), 1e-5, 1e-6));
    }
  }
}

TEST(Attention, ACausalMaskHidesLaterTokens) {
  torch::manual_seed(1);
  const auto qkv = torch::randn({2, 5, 3 * 6});
  auto changed = qkv.clone();
  changed.select(1, 3).add_(1);
  const AttentionOptions options{.heads = 2, .mask = causal_mask(5)};
  const auto before = attend(qkv, options), after = attend(changed, options);
  EXPECT_TRUE(before.narrow(1, 0, 3).equal(after.narrow(1, 0, 3)));
  EXPECT_FALSE(before.select(1, 3).allclose(after.select(1, 3)));
  EXPECT_FALSE(before.select(1, 4).allclose(after.select(1, 4)));
}

TEST(Attention, AKeyMaskHidesPaddingOfEachSequence) {
  torch::manual_seed(1);
  const auto qkv = torch::randn({2, 5, 3 * 6});
  auto padding = torch::zeros({2, 5}, torch::kBool);
  padding[1].narrow(0, 3, 2).fill_(true);
  const auto output = attend(qkv, {.heads = 2, .mask = key_mask(padding, 2, qkv)});
  EXPECT_TRUE(output[0].allclose(attend(qkv, {.heads = 2})[0], 1e-5, 1e-6));
  const auto alone = attend(qkv.narrow(0, 1, 1).narrow(1, 0, 3), {.heads = 2});
  EXPECT_TRUE(output[1].narrow(0, 0, 3).allclose(alone[0], 1e-5, 1e-6));
  EXPECT_FALSE(key_mask({}, 2, qkv).defined());
}

TEST(Attention, DropsWeightsOnlyIfAsked) {
  torch::manual_seed(1);
  const auto qkv = torch::randn({2, 5, 3 * 6});
  EXPECT_TRUE(attend(qkv, {.heads = 2}).equal(attend(qkv, {.heads = 2})));
  EXPECT_FALSE(attend(qkv, {.heads = 2, .dropout = 0.5}).allclose(attend(qkv, {.heads = 2})));
}

}  // namespace
}  // namespace lockstep::network

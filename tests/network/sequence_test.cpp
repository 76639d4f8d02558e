#include "lockstep/network/sequence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "tests/network/support.h"

namespace lockstep::network {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

const torch::Tensor& three_by_four() {
  static const torch::Tensor tokens = torch::zeros({3, 4}, torch::kInt64);
  return tokens;
}

TEST(Sequence, LengthsBecomeAMask) {
  const auto mask = padding_mask(torch::tensor({2, 4, 1}), three_by_four());
  const auto expected = torch::tensor({0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 1, 1}).reshape({3, 4});
  EXPECT_TRUE(mask.equal(expected.to(torch::kBool)));
  EXPECT_TRUE(padding_mask(mask, three_by_four()).equal(mask));
  EXPECT_FALSE(padding_mask({}, three_by_four()).defined());
}

TEST(Sequence, RefusesLengthsAndMasksThatDoNotFit) {
  const auto error = [](const torch::Tensor& padding) {
    return error_of([&] { padding_mask(padding, three_by_four()); });
  };
  EXPECT_THAT(error(torch::tensor({2, 4})), HasSubstr("expected 3 integers"));
  EXPECT_THAT(error(torch::tensor({2.0, 4.0, 1.0})), HasSubstr("got Float [3]"));
  EXPECT_THAT(error(torch::tensor({2, 5, 1})),
              HasSubstr("from 1 to 4, the size of the batch, got 5"));
  EXPECT_THAT(error(torch::tensor({2, 0, 1})), HasSubstr("got 0"));
  EXPECT_THAT(error(torch::zeros({3, 4})), HasSubstr("Bool [3, 4]"));
  EXPECT_THAT(error(torch::zeros({3, 5}, torch::kBool)), HasSubstr("got Bool [3, 5]"));
  EXPECT_THAT(error(torch::ones({3, 4}, torch::kBool)), HasSubstr("nothing but padding"));
}

TEST(Sequence, TheMeanLeavesPaddingOut) {
  auto values = torch::arange(24, torch::kFloat32).reshape({3, 4, 2});
  const auto mask = padding_mask(torch::tensor({2, 4, 1}), three_by_four());
  const auto expected =
      torch::stack({values[0].narrow(0, 0, 2).mean(0), values[1].mean(0), values[2][0]});
  values[0][3].fill_(NAN);
  EXPECT_TRUE(mean_of_tokens(values, mask).allclose(expected));
  EXPECT_TRUE(mean_of_tokens(values.narrow(0, 1, 1), {}).allclose(expected.narrow(0, 1, 1)));
}

TEST(Sequence, ChecksTokens) {
  const TokenLimits limits{.model = "Net", .tokens = 3};
  EXPECT_EQ(error_of([&] { check_tokens(torch::zeros({2, 3}, torch::kInt64), limits); }), "");
  EXPECT_THAT(error_of([&] {
                check_tokens(torch::zeros({2, 4}, torch::kInt64), limits);
              }),
              HasSubstr("Net: expected at most 3 tokens, got sequences of 4"));
  EXPECT_THAT(error_of([&] {
                check_tokens(torch::zeros({2, 3}), limits);
              }),
              HasSubstr("got Float [2, 3]"));
  EXPECT_THAT(error_of([&] { check_tokens(torch::zeros({3}, torch::kInt64), limits); }),
              HasSubstr("got Long [3]"));
}

}  // namespace
}  // namespace lockstep::network

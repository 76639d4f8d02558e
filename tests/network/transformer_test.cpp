#include "lockstep/network/transformer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "tests/network/support.h"

namespace lockstep::network {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

TransformerClassifier small_transformer(double dropout = 0.0, bool per_token = false) {
  return TransformerClassifier(TransformerOptions{.vocabulary = 11,
                                                  .classes = 3,
                                                  .per_token = per_token,
                                                  .tokens = 9,
                                                  .width = 8,
                                                  .layers = 2,
                                                  .heads = 2,
                                                  .hidden = 12,
                                                  .dropout = dropout});
}

TEST(TransformerClassifier, ComputesWhatPythonComputes) {
  auto model = small_transformer();
  testing::fill_by_formula(*model);
  testing::expect_golden_names("transformer", *model);
  const auto tokens = testing::wave_tokens({3, 7}, 11);
  const auto lengths = torch::tensor({4, 7, 1});
  testing::expect_golden("transformer", "train", model->forward(tokens, lengths));
  testing::expect_golden(
      "transformer", "train",
      model->forward(tokens, torch::arange(7).unsqueeze(0) >= lengths.unsqueeze(1)));
}

TEST(TransformerClassifier, PaddingDoesNotChangeTheResult) {
  torch::manual_seed(1);
  auto model = small_transformer();
  const auto tokens = testing::wave_tokens({2, 7}, 11);
  auto other = tokens.clone();
  other[0].narrow(0, 4, 3).fill_(10);
  const auto lengths = torch::tensor({4, 7});
  const auto output = model->forward(tokens, lengths);
  EXPECT_TRUE(output.equal(model->forward(other, lengths)));
  const auto alone = model->forward(tokens.narrow(0, 0, 1).narrow(1, 0, 4));
  EXPECT_TRUE(output.narrow(0, 0, 1).allclose(alone, 1e-5, 1e-6));
  EXPECT_FALSE(output.allclose(model->forward(tokens)));
}

TEST(TransformerClassifier, TrainsAllParameters) {
  for (const bool per_token : {false, true}) {
    torch::manual_seed(1);
    auto model = small_transformer(0.0, per_token);
    // All positions are used.
    testing::expect_gradients_everywhere(*model, model->forward(testing::wave_tokens({5, 9}, 11)));
  }
}

// The head is linear, so the mean of the logits of all tokens is the logits of the mean.
TEST(TransformerClassifier, HasAnOutputPerToken) {
  auto whole = small_transformer();
  auto each = small_transformer(0.0, /*per_token=*/true);
  testing::fill_by_formula(*whole);
  testing::fill_by_formula(*each);
  const auto tokens = testing::wave_tokens({2, 7}, 11);
  const auto lengths = torch::tensor({4, 7});
  const auto logits = each->forward(tokens, lengths);
  ASSERT_EQ(logits.sizes().vec(), (std::vector<std::int64_t>{2, 3, 7}));
  const auto expected = whole->forward(tokens, lengths);
  EXPECT_TRUE(logits[0].narrow(1, 0, 4).mean(1).allclose(expected[0], 1e-4, 1e-5));
  EXPECT_TRUE(logits[1].mean(1).allclose(expected[1], 1e-4, 1e-5));
  auto other = tokens.clone();
  other[0].narrow(0, 4, 3).fill_(10);
  EXPECT_TRUE(each->forward(other, lengths)[0].narrow(1, 0, 4).equal(logits[0].narrow(1, 0, 4)))
      << "padding does not change the outputs of tokens";
  EXPECT_FALSE(logits[1].select(1, 0).allclose(logits[1].select(1, 1)));
}

TEST(TransformerClassifier, HasDropoutOnlyInTraining) {
  torch::manual_seed(1);
  auto model = small_transformer(0.5);
  const auto tokens = testing::wave_tokens({2, 7}, 11);
  EXPECT_FALSE(model->forward(tokens).allclose(model->forward(tokens)));
  model->eval();
  EXPECT_TRUE(model->forward(tokens).equal(model->forward(tokens)));
}

TEST(TransformerClassifier, RefusesWrongOptionsAndInputs) {
  const auto error = [](const TransformerOptions& options) {
    return error_of([&] { TransformerClassifier{options}; });
  };
  EXPECT_THAT(error({.width = 10, .heads = 4}),
              HasSubstr("width: expected a multiple of heads = 4, got 10"));
  EXPECT_THAT(error({.vocabulary = 0}),
              HasSubstr("vocabulary: expected a positive integer, got 0"));
  EXPECT_THAT(error({.hidden = 0}), HasSubstr("hidden"));
  EXPECT_THAT(error({.dropout = 1.0}), HasSubstr("dropout: expected a number in [0, 1), got 1"));
  EXPECT_THAT(error_of([] {
                small_transformer()->forward(torch::zeros({1, 10}, torch::kInt64));
              }),
              HasSubstr("at most 9 tokens"));
}

}  // namespace
}  // namespace lockstep::network

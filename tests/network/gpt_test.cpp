#include "lockstep/network/gpt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "tests/network/support.h"

namespace lockstep::network {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

GPT small_gpt(bool tied) {
  return GPT(
      GPTOptions{.vocabulary = 11, .tokens = 9, .width = 8, .layers = 2, .heads = 2, .tied = tied});
}

TEST(GPT, ComputesWhatPythonComputes) {
  for (const bool tied : {false, true}) {
    auto model = small_gpt(tied);
    const std::string name = tied ? "gpt_tied" : "gpt";
    testing::fill_by_formula(*model);
    testing::expect_golden_names(name, *model);
    testing::expect_golden(name, "train", model->forward(testing::wave_tokens({3, 7}, 11)));
  }
}

// With dropout inside of the layers.
TEST(GPT, HasTheSameBitsIfActivationsAreComputedAgain) {
  std::vector<std::vector<torch::Tensor>> results(2);
  for (const bool checkpoints : {false, true}) {
    torch::manual_seed(1);
    GPT model(GPTOptions{.vocabulary = 11,
                         .tokens = 9,
                         .width = 8,
                         .layers = 2,
                         .heads = 2,
                         .dropout = 0.2,
                         .checkpoint_activations = checkpoints});
    const auto output = model->forward(testing::wave_tokens({3, 7}, 11));
    output.square().mean().backward();
    auto& all = results[checkpoints ? 1 : 0];
    all.push_back(output.detach());
    for (const auto& parameter : model->parameters()) all.push_back(parameter.grad());
    all.push_back(torch::rand({3}));  // the next numbers that are drawn
  }
  ASSERT_EQ(results[0].size(), results[1].size());
  for (std::size_t i = 0; i < results[0].size(); ++i) {
    EXPECT_TRUE(results[0][i].equal(results[1][i])) << i;
  }
}

TEST(GPT, ATokenChangesNoOutputBeforeIt) {
  torch::manual_seed(1);
  auto model = small_gpt(true);
  const auto tokens = testing::wave_tokens({2, 9}, 11);
  const auto output = model->forward(tokens);
  for (std::int64_t at = 0; at < 9; ++at) {
    auto changed = tokens.clone();
    changed.select(1, at).add_(1).remainder_(11);
    const auto after = model->forward(changed);
    EXPECT_TRUE(after.narrow(2, 0, at).equal(output.narrow(2, 0, at))) << at;
    EXPECT_FALSE(after.select(2, at).allclose(output.select(2, at))) << at;
  }
  // So padding at the end changes nothing, either; only the order of sums may differ.
  EXPECT_TRUE(model->forward(tokens.narrow(1, 0, 4)).allclose(output.narrow(2, 0, 4), 1e-4, 1e-6));
}

TEST(GPT, TrainsAllParameters) {
  for (const bool tied : {false, true}) {
    torch::manual_seed(1);
    auto model = small_gpt(tied);
    EXPECT_EQ(testing::count_of(*model),
              11 * 8 * (tied ? 1 : 2) + 9 * 8 + 2 * (12 * 64 + 13 * 8) + 16);
    testing::expect_gradients_everywhere(*model, model->forward(testing::wave_tokens({5, 9}, 11)));
  }
}

TEST(GPT, BeginsWithTheWeightsOfNanoGPT) {
  torch::manual_seed(1);
  const GPT model(GPTOptions{.layers = 8});
  const auto parameters = model->named_parameters();
  EXPECT_NEAR(parameters["transformer.h.0.mlp.c_fc.weight"].std().item<double>(), 0.02, 5e-4);
  EXPECT_NEAR(parameters["transformer.h.0.mlp.c_proj.weight"].std().item<double>(), 0.005, 2e-4);
  EXPECT_EQ(parameters["transformer.h.0.attn.c_attn.bias"].abs().max().item<double>(), 0.0);
}

TEST(GPT, FollowsItsTypeWithTheMask) {
  torch::manual_seed(1);
  auto model = small_gpt(true);
  const auto tokens = testing::wave_tokens({2, 9}, 11);
  const auto in_float = model->forward(tokens);
  model->to(torch::kFloat64);
  EXPECT_TRUE(model->forward(tokens).allclose(in_float.to(torch::kFloat64), 1e-4, 1e-6));
}

TEST(GPT, RefusesWrongOptionsAndInputs) {
  const auto error = [](const GPTOptions& options) { return error_of([&] { GPT{options}; }); };
  EXPECT_THAT(error({.width = 10, .heads = 4}),
              HasSubstr("width: expected a multiple of heads = 4, got 10"));
  EXPECT_THAT(error({.layers = 0}), HasSubstr("layers: expected a positive integer, got 0"));
  EXPECT_THAT(error({.dropout = -0.1}), HasSubstr("dropout"));
  EXPECT_THAT(error_of([] {
                small_gpt(true)->forward(torch::zeros({1, 10}, torch::kInt64));
              }),
              HasSubstr("GPT: expected at most 9 tokens"));
}

}  // namespace
}  // namespace lockstep::network

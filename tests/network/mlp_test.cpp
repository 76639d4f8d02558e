#include "lockstep/network/mlp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "tests/network/support.h"

namespace lockstep::network {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::sizes_of;
using LayerSizes = std::vector<std::int64_t>;

TEST(MLP, HasTheLayersOfItsOptions) {
  torch::manual_seed(1);
  auto model = make_mlp({.in = 12, .hidden = {8, 6}, .out = 3});
  EXPECT_EQ(sizes_of(*model, "1.weight"), (LayerSizes{8, 12}));
  EXPECT_EQ(sizes_of(*model, "3.weight"), (LayerSizes{6, 8}));
  EXPECT_EQ(sizes_of(*model, "5.bias"), (LayerSizes{3}));
  EXPECT_EQ(testing::count_of(*model), 12 * 8 + 8 + 8 * 6 + 6 + 6 * 3 + 3);
  const auto output = model->forward(torch::randn({5, 3, 2, 2}));
  EXPECT_EQ(output.sizes(), torch::IntArrayRef({5, 3}));
  testing::expect_gradients_everywhere(*model, output);
  EXPECT_EQ(make_mlp({.in = 4, .hidden = {}, .out = 2})->size(), 2u);  // Flatten and Linear
}

TEST(MLP, HasTheActivationAndDropoutOfItsOptions) {
  auto model =
      make_mlp({.in = 4, .hidden = {8}, .out = 2, .activation = Activation::kTanh, .dropout = 0.5});
  EXPECT_NE(model[2]->as<torch::nn::Tanh>(), nullptr);
  EXPECT_NE(model[3]->as<torch::nn::Dropout>(), nullptr);
  model = make_mlp({.activation = Activation::kGELU});
  EXPECT_NE(model[2]->as<torch::nn::GELU>(), nullptr);
}

TEST(MLP, RefusesWrongOptions) {
  EXPECT_THAT(error_of([] { make_mlp({.in = 0}); }),
              HasSubstr("in: expected a positive integer, got 0"));
  EXPECT_THAT(error_of([] { make_mlp({.hidden = {4, -1}}); }), HasSubstr("hidden"));
  EXPECT_THAT(error_of([] { make_mlp({.dropout = 2.0}); }), HasSubstr("dropout"));
}

}  // namespace
}  // namespace lockstep::network

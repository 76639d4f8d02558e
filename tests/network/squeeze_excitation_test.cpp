#include "lockstep/network/squeeze_excitation.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"

namespace lockstep::network {
namespace {

TEST(SqueezeExcitation, ScalesChannelsByTheirMeans) {
  torch::manual_seed(1);
  SqueezeExcitation layer(SqueezeExcitationOptions{.channels = 8, .reduction = 4});
  const auto p = layer->named_parameters();
  EXPECT_EQ(p["squeeze.weight"].sizes(), (std::vector<std::int64_t>{2, 8}));
  const auto x = torch::randn({3, 8, 5, 4});
  const auto inner = torch::relu(x.mean({2, 3}).mm(p["squeeze.weight"].t()) + p["squeeze.bias"]);
  const auto scales = torch::sigmoid(inner.mm(p["excite.weight"].t()) + p["excite.bias"]);
  EXPECT_TRUE(torch::allclose(layer(x), x * scales.reshape({3, 8, 1, 1}), 1e-5, 1e-6));
}

TEST(SqueezeExcitation, MayScalePositionsToo) {
  torch::manual_seed(1);
  SqueezeExcitation both(SqueezeExcitationOptions{.channels = 4, .reduction = 2, .spatial = true});
  SqueezeExcitation channels(SqueezeExcitationOptions{.channels = 4, .reduction = 2});
  const torch::NoGradGuard no_grad;
  const auto p = both->named_parameters();
  for (auto& item : channels->named_parameters()) item.value().copy_(p[item.key()]);
  const auto x = torch::randn({2, 4, 3, 3});
  const auto scores = torch::einsum("ncij,c->nij", {x, p["position.weight"][0]});
  const auto positions = torch::sigmoid(scores + p["position.bias"]).unsqueeze(1);
  EXPECT_TRUE(torch::allclose(both(x), channels(x) + x * positions, 1e-5, 1e-6));
}

TEST(SqueezeExcitation, HasAtLeastOneInnerFeature) {
  EXPECT_EQ(SqueezeExcitation(SqueezeExcitationOptions{.channels = 3})
                ->named_parameters()["squeeze.weight"]
                .size(0),
            1);
}

TEST(SqueezeExcitation, RefusesBadValues) {
  EXPECT_THROW(SqueezeExcitation(SqueezeExcitationOptions{}), ConfigError);
  EXPECT_THROW(SqueezeExcitation(SqueezeExcitationOptions{.channels = 2, .reduction = 0}),
               ConfigError);
  EXPECT_THROW(SqueezeExcitation(SqueezeExcitationOptions{.channels = 2})(torch::ones({2, 2})),
               DataError);
}

}  // namespace
}  // namespace lockstep::network

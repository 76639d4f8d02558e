// Layers that a config can name are tested in tests/command/export_test.cpp. Here are their other
// options, and functions that are not layers.
#include <gmock/gmock.h>

#include "tests/exporting/support.h"

namespace lockstep::exporting {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using testing::expect_translated;
using torch::Tensor;

const Tensor kImages = torch::randn({2, 4, 7, 8});

template <typename Layer>
void expect_layer(const Layer& layer, const Tensor& input) {
  testing::export_both(Model(nn::Sequential(layer)), {{"x", input}});
}

TEST(OnnxLayers, Convolutions) {
  expect_layer(nn::Conv2d(nn::Conv2dOptions(4, 3, {2, 3}).padding(torch::kSame)), kImages);
  expect_layer(nn::Conv2d(nn::Conv2dOptions(4, 3, 3).padding(torch::kValid)), kImages);
  expect_layer(
      nn::ConvTranspose2d(nn::ConvTranspose2dOptions(4, 3, 3).stride(2).dilation(2).padding(1)),
      kImages);
}

TEST(OnnxLayers, Pools) {
  expect_layer(nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).ceil_mode(true).padding(1)),
               kImages);
  expect_layer(nn::MaxPool2d(nn::MaxPool2dOptions(2).dilation(2)), kImages);
  expect_layer(nn::AvgPool2d(nn::AvgPool2dOptions(3).padding(1).count_include_pad(false)), kImages);
  EXPECT_THAT(testing::error_of([] {
                to_onnx(
                    Model(nn::Sequential(nn::AvgPool2d(nn::AvgPool2dOptions(3).ceil_mode(true)))),
                    {{"x", kImages}}, "never.onnx");
              }),
              ::testing::HasSubstr("ceil_mode"));
}

TEST(OnnxLayers, Norms) {
  expect_layer(nn::InstanceNorm2d(4), kImages);
  expect_layer(
      nn::InstanceNorm2d(nn::InstanceNormOptions(4).affine(true).track_running_stats(true)),
      kImages);
  expect_layer(nn::GroupNorm(nn::GroupNormOptions(2, 4).affine(false)), kImages);
  // Before operator set 17, layer norm is several operations.
  const Model norm = nn::Sequential(nn::LayerNorm(nn::LayerNormOptions({7, 8})));
  testing::export_both(norm, {{"x", kImages}}, {.opset = 16});
}

TEST(OnnxLayers, Activations) {
  expect_translated(
      [](const Tensor& x) { return F::gelu(x, F::GELUFuncOptions().approximate("tanh")); },
      kImages);
  expect_translated(
      [](const Tensor& x) { return F::softplus(x, F::SoftplusFuncOptions().beta(2)); }, kImages);
  expect_translated(
      [](const Tensor& x) {
        return torch::celu(x, 0.5) + torch::hardswish(x) + torch::hardsigmoid(x);
      },
      kImages);
  expect_translated(
      [](const Tensor& x) { return torch::log_sigmoid(x) + torch::hardtanh(x, -0.5, 0.7); },
      kImages);
  expect_translated([](const Tensor& x) { return torch::glu(x, 1); }, kImages);
  expect_layer(nn::PReLU(nn::PReLUOptions().num_parameters(4)), kImages);
  expect_layer(nn::AlphaDropout(), kImages);
}

}  // namespace
}  // namespace lockstep::exporting

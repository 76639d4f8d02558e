// Residual networks for images (He et al. 2015).
//
//   ls::network::ResNet model(ls::network::ResNetOptions{.depth = 50, .classes = 10});
//
// Depths 18, 34 and 50 are those of torchvision: the same layers, the same names of parameters and
// buffers ("layer1.0.conv1.weight"), the same initial weights, so that torchvision's weights can be
// loaded. Depth 20 is the network of the paper for images of 32 x 32: a first convolution of 3 x 3,
// three stages of 16, 32 and 64 channels, and shortcuts without parameters (the paper's option A:
// every second pixel, new channels are zero). Its parameters have the same kind of names.
#pragma once

#include <cstdint>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

namespace lockstep::network {

struct ResNetOptions {
  std::int64_t depth = 18;      // layers with weights: 18, 20, 34 or 50
  std::int64_t classes = 1000;  // outputs per image
  std::int64_t channels = 3;    // of an image
};

class ResNetImpl : public torch::nn::Module {
 public:
  // Throws ConfigError if an option is wrong.
  explicit ResNetImpl(const ResNetOptions& options = {});

  // Images [batch, channels, height, width] to logits [batch, classes].
  torch::Tensor forward(const torch::Tensor& images);

 private:
  bool is_small_;  // for images of 32 x 32
  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::BatchNorm2d bn1_{nullptr};
  std::vector<torch::nn::Sequential> stages_;
  torch::nn::Linear fc_{nullptr};
};
TORCH_MODULE(ResNet);

}  // namespace lockstep::network

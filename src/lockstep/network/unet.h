// U-Net (Ronneberger et al. 2015) for images and volumes: an output for every pixel.
//
//   ls::network::UNet model(ls::network::UNetOptions{.in = 1, .out = 2, .width = 16});
//
// Each level has two convolutions of 3 (x 3) x 3 with a norm and ReLU after each, and twice the
// channels of the level above it. Names of parameters: "encoder.0.0.weight" (level, layer of the
// level), "upsample.0.0.weight" and "decoder.0.0.weight" from the lowest level up, "head.0.weight".
// A side need not be a multiple of 2^depth: the pixels that pooling leaves out are zeros on the way
// up.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>

namespace lockstep::network {

// Norm after each convolution. All but kBatch treat each sample alone, so that results do not
// depend on how a batch is split into shards.
enum class UNetNorm { kBatch, kInstance, kGroup, kNone };

struct UNetOptions {
  std::int64_t dimensions = 2;  // 2: images, 3: volumes
  std::int64_t in = 1;          // channels of the input
  std::int64_t out = 1;         // channels of the output: classes, for example
  std::int64_t width = 32;      // channels of the first level; kGroup: a multiple of 8
  std::int64_t depth = 4;       // how often the size is halved
  UNetNorm norm = UNetNorm::kBatch;
  // Activations are computed again in backward(), which needs less memory and more time
  // (docs/guide/activation-checkpointing.md): those of a level on the way down together, those of a
  // level on the way up in two parts.
  bool checkpoint_activations = false;
};

class UNetStepUp;

class UNetImpl : public torch::nn::Module {
 public:
  // Throws ConfigError if an option is wrong.
  explicit UNetImpl(const UNetOptions& options = {});

  // [batch, in, height, width] to [batch, out, height, width]; volumes have a depth, too. Throws
  // DataError if a side has fewer than 2^depth pixels.
  torch::Tensor forward(const torch::Tensor& input);

 private:
  torch::Tensor step_up(std::size_t level, const torch::Tensor& skip, const torch::Tensor& x);

  UNetOptions options_;
  std::vector<torch::nn::Sequential> encoder_;
  std::vector<torch::nn::Sequential> upsample_;
  std::vector<torch::nn::Sequential> decoder_;
  // If activations are computed again: a step up and the first half of its level, and the second
  // half. Their layers are those of upsample_ and decoder_.
  std::vector<std::shared_ptr<UNetStepUp>> step_up_;
  std::vector<torch::nn::Sequential> second_half_;
  torch::nn::Sequential head_{nullptr};
};
TORCH_MODULE(UNet);

}  // namespace lockstep::network

#include "lockstep/network/resnet.h"

#include <string>

#include <torch/nn/init.h>

#include "lockstep/base/check.h"
#include "lockstep/base/error.h"

namespace lockstep::network {
namespace {

namespace nn = torch::nn;

// How the depths differ.
struct ResNetDesign {
  std::vector<std::int64_t> blocks;  // in each stage
  std::int64_t width = 64;           // channels of the first stage; each next one has twice as many
  std::int64_t expansion = 1;        // 4: a block of three convolutions has 4 times the channels
  bool is_small = false;             // for images of 32 x 32
};

ResNetDesign design_of(std::int64_t depth) {
  switch (depth) {
    case 18:
      return {.blocks = {2, 2, 2, 2}};
    case 20:
      return {.blocks = {3, 3, 3}, .width = 16, .is_small = true};
    case 34:
      return {.blocks = {3, 4, 6, 3}};
    case 50:
      return {.blocks = {3, 4, 6, 3}, .expansion = 4};
    default:
      throw ConfigError("ResNet: depth: expected 18, 20, 34 or 50, got {}", depth);
  }
}

struct ConvShape {
  std::int64_t in = 0;
  std::int64_t out = 0;
  std::int64_t kernel = 3;
  std::int64_t stride = 1;
};

// Without a bias, because a batch norm follows; the size is only changed by the stride.
nn::Conv2d make_conv(const ConvShape& shape) {
  return nn::Conv2d(nn::Conv2dOptions(shape.in, shape.out, shape.kernel)
                        .stride(shape.stride)
                        .padding(shape.kernel / 2)
                        .bias(false));
}

struct BlockShape {
  std::int64_t in = 0;
  std::int64_t width = 0;
  std::int64_t expansion = 1;
  std::int64_t stride = 1;
  bool pads_shortcut = false;  // option A of the paper; else option B, a convolution

  std::int64_t out() const { return width * expansion; }
};

// torchvision's BasicBlock (two convolutions) or Bottleneck (three).
class ResidualBlock : public nn::Module {
 public:
  explicit ResidualBlock(const BlockShape& shape) : shape_(shape) {
    if (shape.expansion == 1) {
      add({.in = shape.in, .out = shape.width, .stride = shape.stride});
      add({.in = shape.width, .out = shape.width});
    } else {
      add({.in = shape.in, .out = shape.width, .kernel = 1});
      add({.in = shape.width, .out = shape.width, .stride = shape.stride});
      add({.in = shape.width, .out = shape.out(), .kernel = 1});
    }
    const bool has_same_shape = shape.stride == 1 && shape.in == shape.out();
    if (has_same_shape || shape.pads_shortcut) return;
    // Layers are made one by one, because each draws its weights when it is made.
    downsample_ = nn::Sequential();
    downsample_->push_back(
        make_conv({.in = shape.in, .out = shape.out(), .kernel = 1, .stride = shape.stride}));
    downsample_->push_back(nn::BatchNorm2d(shape.out()));
    register_module("downsample", downsample_);
  }

  torch::Tensor forward(const torch::Tensor& input) {
    torch::Tensor x = input;
    for (std::size_t i = 0; i < convs_.size(); ++i) {
      x = norms_[i]->forward(convs_[i]->forward(x));
      if (i + 1 < convs_.size()) x.relu_();
    }
    x += shortcut(input);
    return x.relu_();
  }

 private:
  void add(const ConvShape& shape) {
    const std::string number = std::to_string(convs_.size() + 1);
    convs_.push_back(register_module("conv" + number, make_conv(shape)));
    norms_.push_back(register_module("bn" + number, nn::BatchNorm2d(shape.out)));
  }

  torch::Tensor shortcut(const torch::Tensor& input) {
    if (!downsample_.is_empty()) return downsample_->forward(input);
    if (shape_.stride == 1 && shape_.in == shape_.out()) return input;
    const torch::Tensor fewer =
        input.slice(2, 0, input.size(2), shape_.stride).slice(3, 0, input.size(3), shape_.stride);
    const std::int64_t more = (shape_.out() - shape_.in) / 2;  // on each side
    return torch::constant_pad_nd(fewer, {0, 0, 0, 0, more, more});
  }

  BlockShape shape_;
  std::vector<nn::Conv2d> convs_;
  std::vector<nn::BatchNorm2d> norms_;
  nn::Sequential downsample_{nullptr};
};

// The initial weights of torchvision: batch norms begin with 1 and 0, and the last layer as every
// nn::Linear.
void draw_weights(nn::Module& model) {
  for (const auto& module : model.modules(/*include_self=*/false)) {
    if (auto* const conv = module->as<nn::Conv2d>()) {
      nn::init::kaiming_normal_(conv->weight, 0.0, torch::kFanOut, torch::kReLU);
    }
  }
}

}  // namespace

ResNetImpl::ResNetImpl(const ResNetOptions& options) {
  const ResNetDesign design = design_of(options.depth);
  const Check check("ResNet");
  check.count("classes", options.classes);
  check.count("channels", options.channels);
  is_small_ = design.is_small;
  conv1_ = register_module("conv1", make_conv({.in = options.channels,
                                               .out = design.width,
                                               .kernel = is_small_ ? 3 : 7,
                                               .stride = is_small_ ? 1 : 2}));
  bn1_ = register_module("bn1", nn::BatchNorm2d(design.width));
  BlockShape shape{.in = design.width,
                   .width = design.width,
                   .expansion = design.expansion,
                   .pads_shortcut = is_small_};
  for (const std::int64_t blocks : design.blocks) {
    nn::Sequential stage;
    for (std::int64_t i = 0; i < blocks; ++i) {
      shape.stride = i == 0 && !stages_.empty() ? 2 : 1;
      stage->push_back(std::make_shared<ResidualBlock>(shape));
      shape.in = shape.out();
    }
    stages_.push_back(register_module("layer" + std::to_string(stages_.size() + 1), stage));
    shape.width *= 2;
  }
  fc_ = register_module("fc", nn::Linear(shape.in, options.classes));
  draw_weights(*this);
}

torch::Tensor ResNetImpl::forward(const torch::Tensor& images) {
  if (images.dim() != 4) {
    throw DataError(
        "ResNet: expected images of [batch, channels, height, width], got {} dimensions",
        images.dim());
  }
  // Convolutions and batch norms are a fifth faster if the channels of a pixel are neighbours. All
  // layers keep the layout of their input.
  torch::Tensor x = images.contiguous(torch::MemoryFormat::ChannelsLast);
  x = bn1_->forward(conv1_->forward(x)).relu_();
  if (!is_small_) x = torch::max_pool2d(x, {3, 3}, {2, 2}, {1, 1});
  for (auto& stage : stages_) x = stage->forward(x);
  return fc_->forward(x.mean(torch::IntArrayRef({2, 3})));
}

}  // namespace lockstep::network

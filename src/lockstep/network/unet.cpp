#include "lockstep/network/unet.h"

#include <memory>
#include <string>
#include <utility>

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/normalization.h>

#include "lockstep/base/check.h"
#include "lockstep/base/error.h"
#include "lockstep/compute/checkpointed.h"
#include "lockstep/data/describe.h"

namespace lockstep::network {
namespace {

namespace nn = torch::nn;

constexpr std::int64_t kGroups = 8;

void check(const UNetOptions& options) {
  const Check check("UNet");
  check.require(options.dimensions == 2 || options.dimensions == 3, "dimensions", "2 or 3",
                options.dimensions);
  check.count("in", options.in);
  check.count("out", options.out);
  check.count("width", options.width);
  check.require(options.norm != UNetNorm::kGroup || options.width % kGroups == 0, "width",
                fmt::format("a multiple of {}, because the norm has {} groups", kGroups, kGroups),
                options.width);
  check.require(options.depth >= 1 && options.depth <= 10, "depth", "an integer from 1 to 10",
                options.depth);
}

struct UNetConv {
  std::int64_t in = 0;
  std::int64_t out = 0;
  std::int64_t kernel = 3;
  bool has_bias = true;
};

void add_conv(nn::Sequential& to, std::int64_t dimensions, const UNetConv& conv) {
  const auto with = [&](auto options) {
    return options.padding(conv.kernel / 2).bias(conv.has_bias);
  };
  if (dimensions == 2) {
    to->push_back(nn::Conv2d(with(nn::Conv2dOptions(conv.in, conv.out, conv.kernel))));
  } else {
    to->push_back(nn::Conv3d(with(nn::Conv3dOptions(conv.in, conv.out, conv.kernel))));
  }
}

void add_norm(nn::Sequential& to, const UNetOptions& options, std::int64_t channels) {
  const bool is_flat = options.dimensions == 2;
  switch (options.norm) {
    case UNetNorm::kBatch:
      is_flat ? to->push_back(nn::BatchNorm2d(channels)) : to->push_back(nn::BatchNorm3d(channels));
      break;
    case UNetNorm::kInstance: {
      const auto affine = nn::InstanceNormOptions(channels).affine(true);
      is_flat ? to->push_back(nn::InstanceNorm2d(affine))
              : to->push_back(nn::InstanceNorm3d(affine));
      break;
    }
    case UNetNorm::kGroup:
      to->push_back(nn::GroupNorm(nn::GroupNormOptions(kGroups, channels)));
      break;
    case UNetNorm::kNone:
      break;
  }
}

// Two convolutions, each with a norm and ReLU.
nn::Sequential make_level(const UNetOptions& options, std::int64_t in, std::int64_t out) {
  nn::Sequential level;
  for (const std::int64_t channels : {in, out}) {
    // A norm removes a bias, or has its own.
    add_conv(level, options.dimensions,
             {.in = channels, .out = out, .has_bias = options.norm == UNetNorm::kNone});
    add_norm(level, options, out);
    level->push_back(nn::ReLU(nn::ReLUOptions(/*inplace=*/true)));
  }
  return level;
}

// Doubles the size and halves the channels.
nn::Sequential make_upsample(std::int64_t dimensions, std::int64_t in) {
  nn::Sequential upsample;
  if (dimensions == 2) {
    upsample->push_back(nn::ConvTranspose2d(nn::ConvTranspose2dOptions(in, in / 2, 2).stride(2)));
  } else {
    upsample->push_back(nn::ConvTranspose3d(nn::ConvTranspose3dOptions(in, in / 2, 2).stride(2)));
  }
  return upsample;
}

torch::Tensor halve(const torch::Tensor& x) {
  return x.dim() == 4 ? torch::max_pool2d(x, {2, 2}) : torch::max_pool3d(x, {2, 2, 2});
}

// Adds zeros at the ends of the sides that are shorter than those of `like`.
torch::Tensor pad_to(const torch::Tensor& x, const torch::Tensor& like) {
  std::vector<std::int64_t> padding;  // from the last dimension to the first one, begin and end
  bool is_needed = false;
  for (std::int64_t d = x.dim() - 1; d >= 2; --d) {
    padding.push_back(0);
    padding.push_back(like.size(d) - x.size(d));
    is_needed = is_needed || padding.back() > 0;
  }
  return is_needed ? torch::constant_pad_nd(x, padding) : x;
}

// The layers [begin, end) of a Sequential as another one.
nn::Sequential layers_of(const nn::Sequential& level, std::size_t begin, std::size_t end) {
  nn::Sequential part;
  for (std::size_t i = begin; i < end; ++i) part->push_back(*(level->begin() + i));
  return part;
}

}  // namespace

// Doubles the size of `x`, puts `skip` in front of it and applies a convolution with its norm. As
// one module, so that neither the enlarged tensor nor the joined one has to be kept.
class UNetStepUp : public nn::Module {
 public:
  UNetStepUp(nn::Sequential upsample, nn::Sequential half)
      : upsample_(register_module("upsample", std::move(upsample))),
        half_(register_module("half", std::move(half))) {}

  torch::Tensor forward(const torch::Tensor& skip, const torch::Tensor& x) {
    return half_->forward(torch::cat({skip, pad_to(upsample_->forward(x), skip)}, 1));
  }

 private:
  nn::Sequential upsample_, half_;
};

UNetImpl::UNetImpl(const UNetOptions& options) : options_(options) {
  check(options);
  const auto group = [&](const char* name) {
    return register_module(name, std::make_shared<nn::Module>());
  };
  const auto add = [](const std::shared_ptr<nn::Module>& to, std::vector<nn::Sequential>& list,
                      const nn::Sequential& part) {
    list.push_back(to->register_module(std::to_string(list.size()), part));
  };
  const auto encoder = group("encoder");
  std::int64_t in = options.in;
  std::int64_t width = options.width;
  for (std::int64_t level = 0; level <= options.depth; ++level) {
    add(encoder, encoder_, make_level(options, in, width));
    in = width;
    width *= 2;
  }
  const auto upsample = group("upsample");
  const auto decoder = group("decoder");
  for (std::int64_t level = 0; level < options.depth; ++level) {
    add(upsample, upsample_, make_upsample(options.dimensions, in));
    add(decoder, decoder_, make_level(options, in, in / 2));
    in /= 2;
    if (!options.checkpoint_activations) continue;
    const std::size_t layers = decoder_.back()->size();
    step_up_.push_back(
        std::make_shared<UNetStepUp>(upsample_.back(), layers_of(decoder_.back(), 0, layers / 2)));
    second_half_.push_back(layers_of(decoder_.back(), layers / 2, layers));
  }
  head_ = nn::Sequential();
  add_conv(head_, options.dimensions, {.in = in, .out = options.out, .kernel = 1});
  register_module("head", head_);
}

// Of the lowest level first. backward() begins with the largest level of the way up, while most of
// what is kept still exists. So that its activations do not all exist then, it is in two parts.
torch::Tensor UNetImpl::step_up(std::size_t level, const torch::Tensor& skip,
                                const torch::Tensor& x) {
  if (!options_.checkpoint_activations) {
    return decoder_[level]->forward(
        torch::cat({skip, pad_to(upsample_[level]->forward(x), skip)}, 1));
  }
  return checkpointed(second_half_[level])
      ->forward(checkpointed(step_up_[level])->forward(skip, x));
}

torch::Tensor UNetImpl::forward(const torch::Tensor& input) {
  const std::int64_t least = std::int64_t{1} << options_.depth;
  bool fits = input.dim() == options_.dimensions + 2 && input.size(1) == options_.in;
  for (std::int64_t d = 2; d < input.dim(); ++d) fits = fits && input.size(d) >= least;
  if (!fits) {
    throw DataError(
        "UNet: expected an input of {} dimensions, [batch, {} channels, …], with sides of at least "
        "{}, got {}",
        options_.dimensions + 2, options_.in, least, data::describe(input));
  }
  std::vector<torch::Tensor> skipped;
  torch::Tensor x = input;
  for (auto& level : encoder_) {
    if (!skipped.empty()) x = halve(x);
    x = options_.checkpoint_activations ? checkpointed(level)->forward(x) : level->forward(x);
    skipped.push_back(x);
  }
  skipped.pop_back();
  for (std::size_t i = 0; i < decoder_.size(); ++i) {
    const torch::Tensor skip = std::move(skipped.back());
    skipped.pop_back();
    x = step_up(i, skip, x);
  }
  return head_->forward(x);
}

}  // namespace lockstep::network

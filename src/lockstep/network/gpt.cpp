#include "lockstep/network/gpt.h"

#include <cmath>
#include <memory>
#include <string>

#include <torch/nn/init.h>

#include "lockstep/base/check.h"
#include "lockstep/compute/checkpointed.h"
#include "lockstep/network/sequence.h"

namespace lockstep::network {
namespace {

namespace nn = torch::nn;

void check(const GPTOptions& options) {
  const Check check("GPT");
  check.count("vocabulary", options.vocabulary);
  check.count("tokens", options.tokens);
  check.count("layers", options.layers);
  check.count("heads", options.heads);
  check.count("width", options.width);
  check.require(options.width % options.heads == 0, "width",
                fmt::format("a multiple of heads = {}", options.heads), options.width);
  check.decay("dropout", options.dropout);
}

// A layer with the names and the order of nanoGPT.
BlockLayers add_gpt_layer(nn::Module& owner, std::int64_t width) {
  BlockLayers layers;
  layers.norm1 = owner.register_module("ln_1", nn::LayerNorm(nn::LayerNormOptions({width})));
  nn::Module& attention = *owner.register_module("attn", std::make_shared<nn::Module>());
  const auto qkv = attention.register_module("c_attn", nn::Linear(width, 3 * width));
  layers.qkv_weight = qkv->weight;
  layers.qkv_bias = qkv->bias;
  layers.out = attention.register_module("c_proj", nn::Linear(width, width));
  layers.norm2 = owner.register_module("ln_2", nn::LayerNorm(nn::LayerNormOptions({width})));
  nn::Module& mlp = *owner.register_module("mlp", std::make_shared<nn::Module>());
  layers.up = mlp.register_module("c_fc", nn::Linear(width, 4 * width));
  layers.down = mlp.register_module("c_proj", nn::Linear(4 * width, width));
  return layers;
}

// Normal with 0.02; less in the layers whose outputs are added up, because there are 2 * layers of
// them. Biases are zero.
void draw_gpt_weights(nn::Module& model, std::int64_t layers) {
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    if (auto* const embedding = item.value()->as<nn::Embedding>()) {
      nn::init::normal_(embedding->weight, 0.0, 0.02);
    }
    auto* const linear = item.value()->as<nn::Linear>();
    if (linear == nullptr) continue;
    const bool is_added = item.key().ends_with("c_proj");
    nn::init::normal_(linear->weight, 0.0,
                      is_added ? 0.02 / std::sqrt(2.0 * static_cast<double>(layers)) : 0.02);
    if (linear->bias.defined()) nn::init::zeros_(linear->bias);
  }
}

}  // namespace

GPTImpl::GPTImpl(const GPTOptions& options) : options_(options) {
  check(options);
  const std::int64_t width = options.width;
  nn::Module& decoder = *register_module("transformer", std::make_shared<nn::Module>());
  wte_ = decoder.register_module("wte", nn::Embedding(options.vocabulary, width));
  wpe_ = decoder.register_module("wpe", nn::Embedding(options.tokens, width));
  nn::Module& layers = *decoder.register_module("h", std::make_shared<nn::Module>());
  for (std::int64_t i = 0; i < options.layers; ++i) {
    blocks_.push_back(layers.register_module(std::to_string(i), std::make_shared<nn::Module>()));
    layers_.push_back(add_gpt_layer(*blocks_.back(), width));
  }
  norm_ = decoder.register_module("ln_f", nn::LayerNorm(nn::LayerNormOptions({width})));
  if (!options.tied) {
    head_ = register_module("lm_head",
                            nn::Linear(nn::LinearOptions(width, options.vocabulary).bias(false)));
  }
  draw_gpt_weights(*this, options.layers);
  mask_ = causal_mask(options.tokens);
}

torch::Tensor GPTImpl::forward(const torch::Tensor& tokens) {
  check_tokens(tokens, {.model = "GPT", .tokens = options_.tokens});
  const std::int64_t count = tokens.size(1);
  const double dropout = is_training() ? options_.dropout : 0.0;
  torch::Tensor x = wte_->forward(tokens) + wpe_->weight.narrow(0, 0, count).unsqueeze(0);
  if (dropout > 0) x = torch::dropout(x, dropout, /*train=*/true);
  // After the model was moved to another device or type.
  if (mask_.options().device() != x.device() || mask_.dtype() != x.dtype()) mask_ = mask_.to(x);
  const BlockOptions block{.attention = {.heads = options_.heads,
                                         .mask = mask_.narrow(1, 0, count).narrow(2, 0, count),
                                         .dropout = dropout}};
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (options_.checkpoint_activations) {
      const auto run = [layers = layers_[i], block](const torch::Tensor& own) {
        BlockLayers same = layers;
        return transformer_block(own, same, block);
      };
      x = compute::checkpointed_call<torch::Tensor>(blocks_[i], run, std::tuple(x));
    } else {
      x = transformer_block(x, layers_[i], block);
    }
  }
  const torch::Tensor weight = head_.is_empty() ? wte_->weight : head_->weight;
  return torch::linear(norm_->forward(x), weight).transpose(1, 2);
}

}  // namespace lockstep::network

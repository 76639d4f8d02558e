#include "lockstep/network/transformer.h"

#include <memory>
#include <string>

#include <torch/nn/init.h>

#include "lockstep/base/check.h"
#include "lockstep/network/sequence.h"

namespace lockstep::network {
namespace {

namespace nn = torch::nn;

void check(const TransformerOptions& options) {
  const Check check("TransformerClassifier");
  check.count("vocabulary", options.vocabulary);
  check.count("classes", options.classes);
  check.count("tokens", options.tokens);
  check.count("layers", options.layers);
  check.count("heads", options.heads);
  check.count("width", options.width);
  check.require(options.width % options.heads == 0, "width",
                fmt::format("a multiple of heads = {}", options.heads), options.width);
  if (options.hidden) check.count("hidden", *options.hidden);
  check.decay("dropout", options.dropout);
}

// A layer with the names, the order and the initial weights of nn.TransformerEncoderLayer.
BlockLayers add_encoder_layer(nn::Module& owner, std::int64_t width, std::int64_t hidden) {
  BlockLayers layers;
  nn::Module& attention = *owner.register_module("self_attn", std::make_shared<nn::Module>());
  layers.qkv_weight =
      attention.register_parameter("in_proj_weight", torch::empty({3 * width, width}));
  layers.qkv_bias = attention.register_parameter("in_proj_bias", torch::zeros({3 * width}));
  nn::init::xavier_uniform_(layers.qkv_weight);
  layers.out = attention.register_module("out_proj", nn::Linear(width, width));
  nn::init::zeros_(layers.out->bias);
  layers.up = owner.register_module("linear1", nn::Linear(width, hidden));
  layers.down = owner.register_module("linear2", nn::Linear(hidden, width));
  layers.norm1 = owner.register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({width})));
  layers.norm2 = owner.register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({width})));
  return layers;
}

}  // namespace

TransformerClassifierImpl::TransformerClassifierImpl(const TransformerOptions& options)
    : options_(options) {
  check(options);
  const std::int64_t width = options.width;
  embedding_ = register_module("embedding", nn::Embedding(options.vocabulary, width));
  position_ = register_module("position", nn::Embedding(options.tokens, width));
  for (auto& embedding : {embedding_, position_}) nn::init::normal_(embedding->weight, 0.0, 0.02);
  nn::Module& encoder = *register_module("encoder", std::make_shared<nn::Module>());
  nn::Module& layers = *encoder.register_module("layers", std::make_shared<nn::Module>());
  for (std::int64_t i = 0; i < options.layers; ++i) {
    nn::Module& layer = *layers.register_module(std::to_string(i), std::make_shared<nn::Module>());
    layers_.push_back(add_encoder_layer(layer, width, options.hidden.value_or(4 * width)));
  }
  norm_ = encoder.register_module("norm", nn::LayerNorm(nn::LayerNormOptions({width})));
  head_ = register_module("head", nn::Linear(width, options.classes));
}

torch::Tensor TransformerClassifierImpl::forward(const torch::Tensor& tokens,
                                                 const torch::Tensor& padding) {
  check_tokens(tokens, {.model = "TransformerClassifier", .tokens = options_.tokens});
  const torch::Tensor mask = padding_mask(padding, tokens);
  const double dropout = is_training() ? options_.dropout : 0.0;
  torch::Tensor x =
      embedding_->forward(tokens) + position_->weight.narrow(0, 0, tokens.size(1)).unsqueeze(0);
  const BlockOptions block{.attention = {.heads = options_.heads,
                                         .mask = key_mask(mask, options_.heads, x),
                                         .dropout = dropout},
                           .hidden_dropout = dropout};
  for (auto& layers : layers_) x = transformer_block(x, layers, block);
  x = norm_->forward(x);
  if (options_.per_token) return head_->forward(x).transpose(1, 2);
  return head_->forward(mean_of_tokens(x, mask));
}

}  // namespace lockstep::network

// A classifier of token sequences, or of each token: embeddings, a transformer encoder, and the
// mean of its outputs, or each of them.
//
//   ls::network::TransformerClassifier model(
//       ls::network::TransformerOptions{.vocabulary = 8000, .classes = 2, .tokens = 256});
//   model->forward(tokens, lengths);
//
// In Python its parts are nn.Embedding (embedding, position), nn.Linear (head), and as `encoder`
//
//   nn.TransformerEncoder(
//       nn.TransformerEncoderLayer(width, heads, hidden, dropout, "gelu", batch_first=True,
//                                  norm_first=True), layers, nn.LayerNorm(width))
//
// with the same names of parameters ("encoder.layers.0.self_attn.in_proj_weight").
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include "lockstep/network/attention.h"

namespace lockstep::network {

struct TransformerOptions {
  std::int64_t vocabulary = 256;       // tokens are 0 to this number - 1
  std::int64_t classes = 2;            // outputs per sequence, or per token
  bool per_token = false;              // a class for each token; else one for the sequence
  std::int64_t tokens = 128;           // of the longest sequence
  std::int64_t width = 128;            // of embeddings and layers; a multiple of `heads`
  std::int64_t layers = 2;             // of the encoder
  std::int64_t heads = 4;              // of attention
  std::optional<std::int64_t> hidden;  // width between the two linear layers; default: 4 * width
  double dropout = 0.1;                // between 0 and 1
};

class TransformerClassifierImpl : public torch::nn::Module {
 public:
  // Throws ConfigError if an option is wrong.
  explicit TransformerClassifierImpl(const TransformerOptions& options = {});

  // Tokens [batch, tokens] to logits [batch, classes], or, per token, to [batch, classes, tokens],
  // the shape that CrossEntropyLoss takes with targets of [batch, tokens]. `padding` is the lengths
  // [batch], or a mask [batch, tokens] that is true where there is padding; see padding_mask().
  torch::Tensor forward(const torch::Tensor& tokens, const torch::Tensor& padding = {});

 private:
  TransformerOptions options_;
  torch::nn::Embedding embedding_{nullptr};
  torch::nn::Embedding position_{nullptr};
  std::vector<BlockLayers> layers_;
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::Linear head_{nullptr};
};
TORCH_MODULE(TransformerClassifier);

}  // namespace lockstep::network

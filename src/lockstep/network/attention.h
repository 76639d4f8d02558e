// Self-attention with several heads, and the block of a transformer, for networks that have the
// weights.
#pragma once

#include <cstdint>

#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/types.h>

namespace lockstep::network {

struct AttentionOptions {
  std::int64_t heads = 1;
  torch::Tensor mask;    // added to the scores, -inf: not seen; see below. Undefined: all are seen
  double dropout = 0.0;  // of the weights, between 0 and 1; 0 outside of training
};

// [batch, tokens, 3 * width], the queries, keys and values of one matrix product, to [batch,
// tokens, width]. The mask has the shape [1 or batch * heads, 1 or tokens, tokens].
torch::Tensor attend(const torch::Tensor& qkv, const AttentionOptions& options);

// The layers of a block, which the network registers under its own names.
struct BlockLayers {
  torch::nn::LayerNorm norm1{nullptr};
  torch::Tensor qkv_weight;  // [3 * width, width]
  torch::Tensor qkv_bias;
  torch::nn::Linear out{nullptr};
  torch::nn::LayerNorm norm2{nullptr};
  torch::nn::Linear up{nullptr};
  torch::nn::Linear down{nullptr};
};

struct BlockOptions {
  AttentionOptions attention;   // its dropout is also that of both results that are added
  double hidden_dropout = 0.0;  // between the two linear layers
};

// Attention, then two linear layers with GELU between them; each of the two begins with a norm and
// is added to its input (pre-norm).
torch::Tensor transformer_block(const torch::Tensor& input, BlockLayers& layers,
                                const BlockOptions& options);

// A mask of [1, tokens, tokens] in which a token sees itself and those before it.
torch::Tensor causal_mask(std::int64_t tokens);

// The mask for sequences with padding: nothing sees a token for which `padding` [batch, tokens] is
// true. `like` has the type and device of the scores. Undefined without padding.
torch::Tensor key_mask(const torch::Tensor& padding, std::int64_t heads, const torch::Tensor& like);

}  // namespace lockstep::network

// A small GPT: a decoder that predicts the next token of each place.
//
//   ls::network::GPT model(ls::network::GPTOptions{.vocabulary = 256, .tokens = 128});
//
// Layers, names of parameters ("transformer.h.0.attn.c_attn.weight") and initial weights are those
// of nanoGPT with bias=True: learned positions, norms before attention and MLP, exact GELU. One
// difference: if the embedding is tied, lm_head.weight is transformer.wte.weight and has no name of
// its own, so that it is trained, saved and hashed once. In a file of nanoGPT it is ignored.
#pragma once

#include <cstdint>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include "lockstep/network/attention.h"

namespace lockstep::network {

struct GPTOptions {
  std::int64_t vocabulary = 256;  // tokens are 0 to this number - 1
  std::int64_t tokens = 128;      // of the longest sequence
  std::int64_t width = 128;       // of embeddings and layers; a multiple of `heads`
  std::int64_t layers = 4;        // attention and MLP
  std::int64_t heads = 4;         // of attention
  double dropout = 0.0;           // between 0 and 1
  bool tied = true;               // the last layer has the weights of the embedding
  // Activations inside of a layer are computed again in backward(), which needs less memory and
  // more time (docs/guide/activation-checkpointing.md).
  bool checkpoint_activations = false;
};

class GPTImpl : public torch::nn::Module {
 public:
  // Throws ConfigError if an option is wrong.
  explicit GPTImpl(const GPTOptions& options = {});

  // Tokens [batch, tokens] to logits [batch, vocabulary, tokens], the shape that CrossEntropyLoss
  // takes with targets of [batch, tokens]. An output depends only on its token and those before it,
  // so padding at the end needs no mask: give its targets the value that the loss ignores (-100).
  torch::Tensor forward(const torch::Tensor& tokens);

 private:
  GPTOptions options_;
  torch::nn::Embedding wte_{nullptr};  // tokens
  torch::nn::Embedding wpe_{nullptr};  // positions
  std::vector<BlockLayers> layers_;
  std::vector<std::shared_ptr<torch::nn::Module>> blocks_;  // have the parameters of layers_
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::Linear head_{nullptr};  // empty if tied
  torch::Tensor mask_;               // for the longest sequence; not saved with the weights
};
TORCH_MODULE(GPT);

}  // namespace lockstep::network

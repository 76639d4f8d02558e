// LSTM and GRU networks that classify sequences, or each token of them.
//
//   ls::network::Recurrent model(ls::network::RecurrentOptions{
//       .cell = ls::network::Cell::kGRU, .vocabulary = 8000, .classes = 2});
//   model->forward(tokens, lengths);
//
// In Python its parts are nn.Embedding (embedding), nn.LSTM or nn.GRU (rnn) and nn.Linear (head),
// with the same names of parameters ("rnn.weight_ih_l0").
#pragma once

#include <cstdint>
#include <optional>

#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/pimpl.h>

namespace lockstep::network {

enum class Cell { kLSTM, kGRU };

struct RecurrentOptions {
  Cell cell = Cell::kLSTM;
  std::optional<std::int64_t> vocabulary;  // inputs are tokens, 0 to this number - 1
  std::optional<std::int64_t> features;    // or inputs are vectors of this size
  std::int64_t classes = 2;                // outputs per sequence, or per token
  bool per_token = false;                  // a class for each token; else one for the sequence
  std::int64_t embedding = 64;             // size of a token's vector, with a vocabulary
  std::int64_t hidden = 128;               // size of the state, of each direction
  std::int64_t layers = 1;
  bool bidirectional = false;
  double dropout = 0.0;  // before every layer but the first, and before the last linear layer
};

class RecurrentImpl : public torch::nn::Module {
 public:
  // Throws ConfigError if an option is wrong.
  explicit RecurrentImpl(const RecurrentOptions& options);

  // Tokens [batch, tokens] or vectors [batch, tokens, features] to logits [batch, classes], or, per
  // token, to [batch, classes, tokens], the shape that CrossEntropyLoss takes with targets of
  // [batch, tokens]. Without `lengths` [batch], no sequence has padding.
  torch::Tensor forward(const torch::Tensor& input, const torch::Tensor& lengths = {});

 private:
  torch::Tensor embed(const torch::Tensor& input);

  RecurrentOptions options_;
  torch::nn::Embedding embedding_{nullptr};
  torch::nn::LSTM lstm_{nullptr};  // one of the two
  torch::nn::GRU gru_{nullptr};
  torch::nn::Linear head_{nullptr};
};
TORCH_MODULE(Recurrent);

}  // namespace lockstep::network

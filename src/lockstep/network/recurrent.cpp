#include "lockstep/network/recurrent.h"

#include <limits>
#include <tuple>

#include <torch/nn/utils/rnn.h>

#include "lockstep/base/check.h"
#include "lockstep/base/error.h"
#include "lockstep/data/describe.h"
#include "lockstep/network/sequence.h"

namespace lockstep::network {
namespace {

namespace nn = torch::nn;

void check(const RecurrentOptions& options) {
  const Check check("Recurrent");
  if (options.vocabulary.has_value() == options.features.has_value()) {
    throw ConfigError(
        "Recurrent: vocabulary: expected either a vocabulary, for tokens, or features, for "
        "vectors, got {}",
        options.vocabulary ? "both" : "neither");
  }
  if (options.vocabulary) check.count("vocabulary", *options.vocabulary);
  if (options.features) check.count("features", *options.features);
  check.count("classes", options.classes);
  check.count("embedding", options.embedding);
  check.count("hidden", options.hidden);
  check.count("layers", options.layers);
  check.decay("dropout", options.dropout);
}

template <typename ModuleOptions>
ModuleOptions rnn_options(const RecurrentOptions& options) {
  // LibTorch warns if there is only one layer, because dropout is between layers.
  return ModuleOptions(options.features.value_or(options.embedding), options.hidden)
      .num_layers(options.layers)
      .bidirectional(options.bidirectional)
      .batch_first(true)
      .dropout(options.layers > 1 ? options.dropout : 0.0);
}

struct RecurrentResult {
  torch::Tensor outputs;  // of each token, [batch, tokens, state of both directions]
  torch::Tensor last;     // state, [layers * directions, batch, hidden]
};

const torch::Tensor& last_state(const torch::Tensor& state) {
  return state;
}
const torch::Tensor& last_state(const std::tuple<torch::Tensor, torch::Tensor>& states) {
  return std::get<0>(states);
}

template <typename Module>
RecurrentResult run(Module& module, const torch::Tensor& input, const torch::Tensor& lengths) {
  if (!lengths.defined()) {
    const auto [outputs, state] = module->forward(input);
    return {outputs, last_state(state)};
  }
  namespace rnn = nn::utils::rnn;
  const auto packed = rnn::pack_padded_sequence(input, checked_lengths(lengths, input),
                                                /*batch_first=*/true, /*enforce_sorted=*/false);
  const auto [outputs, state] = module->forward_with_packed_input(packed);
  const auto padded = rnn::pad_packed_sequence(outputs, /*batch_first=*/true, 0.0, input.size(1));
  return {std::get<0>(padded), last_state(state)};
}

}  // namespace

RecurrentImpl::RecurrentImpl(const RecurrentOptions& options) : options_(options) {
  check(options);
  if (options.vocabulary) {
    embedding_ =
        register_module("embedding", nn::Embedding(*options.vocabulary, options.embedding));
  }
  if (options.cell == Cell::kLSTM) {
    lstm_ = register_module("rnn", nn::LSTM(rnn_options<nn::LSTMOptions>(options)));
  } else {
    gru_ = register_module("rnn", nn::GRU(rnn_options<nn::GRUOptions>(options)));
  }
  const std::int64_t directions = options.bidirectional ? 2 : 1;
  head_ = register_module("head", nn::Linear(directions * options.hidden, options.classes));
}

torch::Tensor RecurrentImpl::embed(const torch::Tensor& input) {
  if (options_.vocabulary) {
    check_tokens(input, {.model = "Recurrent", .tokens = std::numeric_limits<std::int64_t>::max()});
    return embedding_->forward(input);
  }
  if (input.dim() != 3 || input.size(2) != *options_.features) {
    throw DataError("Recurrent: expected [batch, tokens, {} features], got {}", *options_.features,
                    data::describe(input));
  }
  return input;
}

torch::Tensor RecurrentImpl::forward(const torch::Tensor& input, const torch::Tensor& lengths) {
  const torch::Tensor vectors = embed(input);
  const RecurrentResult result =
      gru_.is_empty() ? run(lstm_, vectors, lengths) : run(gru_, vectors, lengths);
  torch::Tensor x = result.outputs;
  if (!options_.per_token) {
    // The last layer's final state; with two directions, the backward one has seen all tokens, too.
    const std::int64_t count = result.last.size(0);
    x = options_.bidirectional ? torch::cat({result.last[count - 2], result.last[count - 1]}, 1)
                               : result.last[count - 1];
  }
  const torch::Tensor logits =
      head_->forward(torch::dropout(x, options_.dropout, /*train=*/is_training()));
  return options_.per_token ? logits.transpose(1, 2) : logits;
}

}  // namespace lockstep::network

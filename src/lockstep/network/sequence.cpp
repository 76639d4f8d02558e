#include "lockstep/network/sequence.h"

#include <fmt/ranges.h>

#include "lockstep/base/error.h"
#include "lockstep/data/describe.h"

namespace lockstep::network {

void check_tokens(const torch::Tensor& tokens, const TokenLimits& limits) {
  if (tokens.dim() != 2 || tokens.scalar_type() != torch::kInt64) {
    throw DataError("{}: expected tokens as Long [batch, tokens], got {}", limits.model,
                    data::describe(tokens));
  }
  if (tokens.size(1) > limits.tokens) {
    throw DataError("{}: expected at most {} tokens, got sequences of {}; increase `tokens`",
                    limits.model, limits.tokens, tokens.size(1));
  }
}

torch::Tensor checked_lengths(const torch::Tensor& lengths, const torch::Tensor& sequences) {
  const std::int64_t batch = sequences.size(0), tokens = sequences.size(1);
  if (lengths.dim() != 1 || lengths.size(0) != batch || lengths.is_floating_point()) {
    throw DataError("lengths: expected {} integers, one per sequence, got {}", batch,
                    data::describe(lengths));
  }
  const torch::Tensor known = lengths.to(torch::kCPU, torch::kInt64);
  const auto least = known.min().item<std::int64_t>(), most = known.max().item<std::int64_t>();
  if (least < 1 || most > tokens) {
    throw DataError("lengths: expected lengths from 1 to {}, the size of the batch, got {}", tokens,
                    least < 1 ? least : most);
  }
  return known;
}

torch::Tensor padding_mask(const torch::Tensor& padding, const torch::Tensor& tokens) {
  if (!padding.defined()) return {};
  if (padding.dim() == 1) {
    const torch::Tensor lengths = checked_lengths(padding, tokens).to(tokens.device());
    return torch::arange(tokens.size(1), lengths.options()).unsqueeze(0) >= lengths.unsqueeze(1);
  }
  const torch::IntArrayRef expected = tokens.sizes().slice(0, 2);
  if (padding.sizes() != expected || padding.scalar_type() != torch::kBool) {
    throw DataError(
        "padding: expected the lengths of {} sequences, or a mask Bool [{}] that is true "
        "where there is padding, got {}",
        tokens.size(0), fmt::join(expected, ", "), data::describe(padding));
  }
  if (padding.all(1).any().item<bool>()) {
    throw DataError(
        "padding: a sequence is nothing but padding; the mask must be true where there is padding, "
        "and false for at least one token of each sequence");
  }
  return padding;
}

torch::Tensor mean_of_tokens(const torch::Tensor& values, const torch::Tensor& mask) {
  if (!mask.defined()) return values.mean(1);
  const torch::Tensor is_real = mask.logical_not().unsqueeze(2);
  return values.masked_fill(mask.unsqueeze(2), 0).sum(1) / is_real.sum(1);
}

}  // namespace lockstep::network

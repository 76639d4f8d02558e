// Sequences of different lengths in one batch: the end of a shorter one is padding.
#pragma once

#include <cstdint>
#include <string>

#include <torch/types.h>

namespace lockstep::network {

struct TokenLimits {
  std::string model;        // for messages
  std::int64_t tokens = 0;  // of the longest sequence
};

// Throws DataError if these are not [batch, tokens] integers, or longer than the model allows.
void check_tokens(const torch::Tensor& tokens, const TokenLimits& limits);

// `padding` is undefined (no sequence has padding), or the lengths [batch], or a mask [batch,
// tokens] that is true where there is padding, as PyTorch's src_key_padding_mask. Returns the mask;
// undefined without padding. Throws DataError if the shape is another one, or if a sequence has no
// token at all.
torch::Tensor padding_mask(const torch::Tensor& padding, const torch::Tensor& tokens);

// The lengths [batch] as integers on the CPU. Throws DataError if they do not fit the sequences
// [batch, tokens, …].
torch::Tensor checked_lengths(const torch::Tensor& lengths, const torch::Tensor& sequences);

// The mean [batch, features] over the tokens of [batch, tokens, features] that are not padding.
torch::Tensor mean_of_tokens(const torch::Tensor& values, const torch::Tensor& mask);

}  // namespace lockstep::network

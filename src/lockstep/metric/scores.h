// What the scores of a model mean, and the probabilities that follow from them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include <torch/types.h>

namespace lockstep::metric {

enum class ScoreKind {
  kLogits,  // any numbers; a softmax, or a sigmoid for each number alone, makes probabilities
  kProbabilities,  // from 0 to 1
};

// "logits" or "probabilities", as a config writes it.
constexpr const char* name_of(ScoreKind kind) {
  return kind == ScoreKind::kLogits ? "logits" : "probabilities";
}

// The score above which the probability is larger than `threshold`. So logits are compared without
// computing their probabilities: with 0.5, a logit must be larger than 0. Throws ConfigError, which
// names `metric`, unless the threshold is from 0 to 1.
double score_limit(ScoreKind kind, double threshold, std::string_view metric);

// Classes and their probabilities, as LogLoss and CalibrationError need them.
struct ClassProbabilities {
  torch::Tensor values;  // float64 [N, C], contiguous, on the CPU
  torch::Tensor logs;  // their natural logarithms, computed from logits without rounding them to 0
  torch::Tensor labels;  // int64 [N]
};

// Reads outputs [N, C] with labels [N], or, for two classes, one score per sample, [N] or [N, 1],
// of being 1. Then there are two columns, those of being 0 and being 1. Throws DataError for NaN,
// for a probability outside of [0, 1], and for a label that is not a class.
ClassProbabilities class_probabilities(const torch::Tensor& outputs, const torch::Tensor& targets,
                                       ScoreKind kind, std::string_view metric);

}  // namespace lockstep::metric

#include "lockstep/loss/overlap_loss.h"

#include <ostream>
#include <utility>

#include <fmt/ranges.h>

#include "lockstep/base/check.h"
#include "lockstep/data/describe.h"

namespace lockstep {
namespace {

const char* name_of(Probabilities probabilities) {
  if (probabilities == Probabilities::kSoftmax) return "softmax";
  return probabilities == Probabilities::kSigmoid ? "sigmoid" : "none";
}

}  // namespace

OverlapLossImpl::OverlapLossImpl(std::string name, TverskyLossOptions options)
    : torch::nn::Module(name), name_(std::move(name)), options_(std::move(options)) {
  const Check check(name_);
  check.not_negative("smooth", options_.overlap.smooth);
  check.not_negative("false_positives", options_.false_positives);
  check.not_negative("false_negatives", options_.false_negatives);
  check.positive("gamma", options_.gamma);
  double sum = 0;
  for (const double weight : options_.overlap.weight) {
    check.not_negative("weight", weight);
    sum += weight;
  }
  if (options_.overlap.weight.empty()) return;
  check.positive("the sum of weight", sum);
  weight_ = register_buffer("weight", torch::tensor(options_.overlap.weight, torch::kFloat32));
}

// The share of each class in each pixel, in the shape of the scores.
torch::Tensor OverlapLossImpl::target_shares(const torch::Tensor& scores,
                                             const torch::Tensor& targets) const {
  if (targets.is_floating_point()) return targets;
  torch::Tensor classes = targets;
  if (options_.overlap.ignore_index) {
    classes = classes.masked_fill(classes == *options_.overlap.ignore_index, 0);
  }
  return torch::one_hot(classes, scores.size(1)).movedim(-1, 1).to(scores.scalar_type());
}

torch::Tensor OverlapLossImpl::forward(const torch::Tensor& scores,
                                       const torch::Tensor& targets) const {
  const OverlapLossOptions& options = options_.overlap;
  const bool has_classes = !targets.is_floating_point();
  const bool fits = has_classes ? options.probabilities != Probabilities::kSigmoid &&
                                      targets.scalar_type() == torch::kInt64 &&
                                      targets.dim() + 1 == scores.dim()
                                : targets.sizes() == scores.sizes();
  if (scores.dim() < 3 || !fits) {
    throw ConfigError("{}: expected scores [N, C, …] and {}, got {} and {}", name_,
                      options.probabilities == Probabilities::kSigmoid
                          ? "floating-point targets of the same shape"
                          : "classes [N, …], or floating-point targets of the same shape",
                      data::describe(scores), data::describe(targets));
  }
  if (weight_.defined() && weight_.size(0) != scores.size(1)) {
    throw ConfigError("{}: weight: expected {} numbers, one for each class, got {}", name_,
                      scores.size(1), weight_.size(0));
  }
  torch::Tensor shares = target_shares(scores, targets);
  torch::Tensor chances = scores;
  if (options.probabilities == Probabilities::kSoftmax) chances = torch::softmax(scores, 1);
  if (options.probabilities == Probabilities::kSigmoid) chances = torch::sigmoid(scores);
  if (has_classes && options.ignore_index) {
    const torch::Tensor counts = (targets != *options.ignore_index).unsqueeze(1);
    shares = shares * counts;
    chances = chances * counts;
  }
  // [N, C, pixels], or with `batch` [1, C, samples x pixels].
  shares = shares.flatten(2);
  chances = chances.flatten(2);
  if (options.batch) {
    shares = shares.transpose(0, 1).flatten(1).unsqueeze(0);
    chances = chances.transpose(0, 1).flatten(1).unsqueeze(0);
  }
  const torch::Tensor hits = (shares * chances).sum(-1);
  const torch::Tensor false_positives = chances.sum(-1) - hits;
  const torch::Tensor false_negatives = shares.sum(-1) - hits;
  const torch::Tensor index =
      (hits + options.smooth) / (hits + options_.false_positives * false_positives +
                                 options_.false_negatives * false_negatives + options.smooth);
  torch::Tensor loss = 1 - index;
  // The slope of a root is infinite at zero.
  if (options_.gamma != 1.0) loss = loss.clamp_min(1e-8).pow(1.0 / options_.gamma);
  if (weight_.defined()) {
    const torch::Tensor weight = weight_.to(loss.scalar_type());
    return (loss * weight).sum(1).mean() / weight.sum();
  }
  return loss.mean();
}

void OverlapLossImpl::pretty_print(std::ostream& stream) const {
  const OverlapLossOptions& options = options_.overlap;
  stream << fmt::format(
      "{}(probabilities={}, smooth={}, batch={}, weight=[{}], ignore_index={}, false_positives={}, "
      "false_negatives={}, gamma={})",
      name_, name_of(options.probabilities), options.smooth, options.batch,
      fmt::join(options.weight, ", "),
      options.ignore_index ? std::to_string(*options.ignore_index) : "none",
      options_.false_positives, options_.false_negatives, options_.gamma);
}

DiceLossImpl::DiceLossImpl(OverlapLossOptions options)
    : OverlapLossImpl(
          "DiceLoss",
          {.overlap = std::move(options), .false_positives = 0.5, .false_negatives = 0.5}) {}

IoULossImpl::IoULossImpl(OverlapLossOptions options)
    : OverlapLossImpl(
          "IoULoss",
          {.overlap = std::move(options), .false_positives = 1.0, .false_negatives = 1.0}) {}

TverskyLossImpl::TverskyLossImpl(TverskyLossOptions options)
    : OverlapLossImpl("TverskyLoss", std::move(options)) {}

}  // namespace lockstep

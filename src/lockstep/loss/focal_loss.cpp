#include "lockstep/loss/focal_loss.h"

#include <ostream>
#include <utility>

#include <fmt/ranges.h>
#include <torch/nn/functional/activation.h>
#include <torch/nn/functional/loss.h>

#include "lockstep/base/check.h"
#include "lockstep/data/describe.h"

namespace lockstep {
namespace {

namespace F = torch::nn::functional;

// (1 - p)^gamma, where p = exp(-entropy) is the probability of the right answer.
torch::Tensor focus(const torch::Tensor& entropy, double gamma) {
  torch::Tensor wrong = torch::expm1(-entropy).neg();
  // The slope of a root is infinite at zero.
  if (gamma > 0 && gamma < 1) wrong = wrong.clamp_min(1e-8);
  return wrong.pow(gamma);
}

}  // namespace

FocalLossImpl::FocalLossImpl(FocalLossOptions options) : options_(std::move(options)) {
  const Check check("FocalLoss");
  check.not_negative("gamma", options_.gamma);
  for (const double weight : options_.weight) check.not_negative("weight", weight);
  if (options_.weight.empty()) return;
  weight_ = register_buffer("weight", torch::tensor(options_.weight, torch::kFloat32));
}

torch::Tensor FocalLossImpl::forward(const torch::Tensor& scores,
                                     const torch::Tensor& classes) const {
  if (scores.dim() < 2 || classes.dim() + 1 != scores.dim() ||
      classes.scalar_type() != torch::kInt64) {
    throw ConfigError("FocalLoss: expected scores [N, C, …] and classes [N, …], got {} and {}",
                      data::describe(scores), data::describe(classes));
  }
  const torch::Tensor entropy = F::cross_entropy(
      scores, classes,
      F::CrossEntropyFuncOptions().ignore_index(options_.ignore_index).reduction(torch::kNone));
  const torch::Tensor counts = classes != options_.ignore_index;
  torch::Tensor loss = focus(entropy, options_.gamma) * entropy;
  if (weight_.defined()) {
    const torch::Tensor known = classes.masked_fill(~counts, 0);
    loss = loss * weight_.to(loss.scalar_type()).index_select(0, known.flatten()).view_as(known);
  }
  return (loss * counts).sum() / counts.sum().clamp_min(1);
}

LossOver FocalLossImpl::over(const torch::Tensor&, const torch::Tensor& classes) const {
  return mean_over((classes != options_.ignore_index).sum().item<double>());
}

void FocalLossImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format("FocalLoss(gamma={}, weight=[{}], ignore_index={})", options_.gamma,
                        fmt::join(options_.weight, ", "), options_.ignore_index);
}

BinaryFocalLossImpl::BinaryFocalLossImpl(BinaryFocalLossOptions options) : options_(options) {
  const Check check("BinaryFocalLoss");
  check.not_negative("gamma", options_.gamma);
  if (options_.alpha) check.fraction("alpha", *options_.alpha);
}

torch::Tensor BinaryFocalLossImpl::forward(const torch::Tensor& scores,
                                           const torch::Tensor& targets) const {
  if (scores.sizes() != targets.sizes() || !targets.is_floating_point()) {
    throw ConfigError(
        "BinaryFocalLoss: expected scores and floating-point targets of one shape, got {} and {}",
        data::describe(scores), data::describe(targets));
  }
  const torch::Tensor entropy = F::binary_cross_entropy_with_logits(
      scores, targets, F::BinaryCrossEntropyWithLogitsFuncOptions().reduction(torch::kNone));
  // As in torchvision, also for targets between 0 and 1.
  const torch::Tensor p = torch::sigmoid(scores);
  torch::Tensor wrong = p * (1 - targets) + (1 - p) * targets;
  if (options_.gamma > 0 && options_.gamma < 1) wrong = wrong.clamp_min(1e-8);
  torch::Tensor loss = wrong.pow(options_.gamma) * entropy;
  if (options_.alpha) {
    loss = loss * (*options_.alpha * targets + (1 - *options_.alpha) * (1 - targets));
  }
  return loss.mean();
}

void BinaryFocalLossImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format("BinaryFocalLoss(gamma={}, alpha={})", options_.gamma,
                        options_.alpha ? fmt::format("{}", *options_.alpha) : "none");
}

}  // namespace lockstep

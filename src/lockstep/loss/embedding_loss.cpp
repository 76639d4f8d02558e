#include "lockstep/loss/embedding_loss.h"

#include <limits>
#include <ostream>
#include <string>

#include <torch/nn/functional/normalization.h>

#include "lockstep/base/check.h"
#include "lockstep/compute/autocast.h"
#include "lockstep/data/describe.h"

namespace lockstep {
namespace {

void check_labels(const std::string& loss, const torch::Tensor& embeddings,
                  const torch::Tensor& labels) {
  if (embeddings.dim() == 2 && labels.dim() == 1 && labels.size(0) == embeddings.size(0) &&
      !labels.is_floating_point()) {
    return;
  }
  throw ConfigError("{}: expected embeddings [N, D] and integer labels [N], got {} and {}", loss,
                    data::describe(embeddings), data::describe(labels));
}

// The Euclidean distances [N, N], from differences: a product of matrices would be faster, and
// wrong for rows that are almost equal. Equal rows have no gradient.
torch::Tensor distances(const torch::Tensor& embeddings) {
  constexpr std::int64_t kWithoutProduct = 2;
  return torch::cdist(embeddings, embeddings, 2.0, kWithoutProduct);
}

torch::Tensor same_label(const torch::Tensor& labels) {
  return labels.unsqueeze(0) == labels.unsqueeze(1);
}

torch::Tensor not_itself(const torch::Tensor& labels) {
  const auto options = torch::TensorOptions().dtype(torch::kBool).device(labels.device());
  return ~torch::eye(labels.size(0), options);
}

// The mean over pairs of different samples. Every pair is in the matrix twice, which does not
// change the mean.
torch::Tensor mean_over_pairs(const torch::Tensor& losses, const torch::Tensor& labels) {
  const torch::Tensor counts = not_itself(labels);
  return (losses * counts).sum() / counts.sum().clamp_min(1);
}

}  // namespace

ContrastiveLossImpl::ContrastiveLossImpl(ContrastiveLossOptions options) : options_(options) {
  Check("ContrastiveLoss").positive("margin", options_.margin);
}

torch::Tensor ContrastiveLossImpl::forward(const torch::Tensor& embeddings,
                                           const torch::Tensor& labels) const {
  check_labels("ContrastiveLoss", embeddings, labels);
  const torch::Tensor distance = distances(embeddings);
  const torch::Tensor missing = (options_.margin - distance).relu();
  const torch::Tensor losses =
      torch::where(same_label(labels), distance.square(), missing.square()) / 2;
  return mean_over_pairs(losses, labels);
}

void ContrastiveLossImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format("ContrastiveLoss(margin={})", options_.margin);
}

TripletLossImpl::TripletLossImpl(TripletLossOptions options) : options_(options) {
  Check("TripletLoss").not_negative("margin", options_.margin);
}

torch::Tensor TripletLossImpl::forward(const torch::Tensor& embeddings,
                                       const torch::Tensor& labels) const {
  check_labels("TripletLoss", embeddings, labels);
  const torch::Tensor distance = distances(embeddings);
  const torch::Tensor same = same_label(labels) & not_itself(labels);
  const torch::Tensor other = ~same_label(labels);
  const double infinity = std::numeric_limits<double>::infinity();
  if (options_.mining == TripletMining::kHard) {
    const torch::Tensor counts = same.any(1) & other.any(1);
    const torch::Tensor farthest = distance.masked_fill(~same, -infinity).amax(1);
    const torch::Tensor nearest = distance.masked_fill(~other, infinity).amin(1);
    // Anchors without a triplet have infinite distances.
    const torch::Tensor gap = torch::where(counts, farthest - nearest, torch::zeros_like(nearest));
    return ((gap + options_.margin).relu() * counts).sum() / counts.sum().clamp_min(1);
  }
  // [anchor, same label, other label]
  const torch::Tensor counts = same.unsqueeze(2) & other.unsqueeze(1);
  const torch::Tensor losses =
      (distance.unsqueeze(2) - distance.unsqueeze(1) + options_.margin).relu() * counts;
  return losses.sum() / (losses > 0).sum().clamp_min(1);
}

void TripletLossImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format("TripletLoss(margin={}, mining={})", options_.margin,
                        options_.mining == TripletMining::kHard ? "hard" : "all");
}

MarginLossImpl::MarginLossImpl(MarginLossOptions options) : options_(options) {
  const Check check("MarginLoss");
  check.positive("beta", options_.beta);
  check.not_negative("alpha", options_.alpha);
}

torch::Tensor MarginLossImpl::forward(const torch::Tensor& embeddings,
                                      const torch::Tensor& labels) const {
  check_labels("MarginLoss", embeddings, labels);
  const torch::Tensor beyond = distances(embeddings) - options_.beta;
  const torch::Tensor losses =
      (torch::where(same_label(labels), beyond, -beyond) + options_.alpha).relu();
  return mean_over_pairs(losses, labels);
}

void MarginLossImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format("MarginLoss(beta={}, alpha={})", options_.beta, options_.alpha);
}

SupervisedContrastiveLossImpl::SupervisedContrastiveLossImpl(
    SupervisedContrastiveLossOptions options)
    : options_(options) {
  Check("SupervisedContrastiveLoss").positive("temperature", options_.temperature);
}

torch::Tensor SupervisedContrastiveLossImpl::forward(const torch::Tensor& embeddings,
                                                     const torch::Tensor& labels) const {
  check_labels("SupervisedContrastiveLoss", embeddings, labels);
  namespace F = torch::nn::functional;
  const torch::Tensor rows = F::normalize(embeddings, F::NormalizeFuncOptions().dim(1));
  const torch::Tensor others = not_itself(labels);
  // In mixed precision the product has 16 bits.
  const torch::Tensor similarities = widened(rows.mm(rows.t())) / options_.temperature;
  // The smallest number instead of -infinity, because 0 times infinity below would be NaN.
  const double nothing = std::numeric_limits<float>::lowest();
  const torch::Tensor logs = torch::log_softmax(similarities.masked_fill(~others, nothing), 1);
  const torch::Tensor same = same_label(labels) & others;
  const torch::Tensor partners = same.sum(1);
  const torch::Tensor losses =
      -torch::where(same, logs, torch::zeros_like(logs)).sum(1) / partners.clamp_min(1);
  return losses.sum() / (partners > 0).sum().clamp_min(1);
}

void SupervisedContrastiveLossImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format("SupervisedContrastiveLoss(temperature={})", options_.temperature);
}

BarlowTwinsLossImpl::BarlowTwinsLossImpl(BarlowTwinsLossOptions options) : options_(options) {
  const Check check("BarlowTwinsLoss");
  check.not_negative("off_diagonal", options_.off_diagonal);
  check.positive("eps", options_.eps);
}

torch::Tensor BarlowTwinsLossImpl::forward(const torch::Tensor& left,
                                           const torch::Tensor& right) const {
  if (left.dim() != 2 || left.sizes() != right.sizes()) {
    throw ConfigError(
        "BarlowTwinsLoss: expected two projections of one shape [N, D], got {} and {}",
        data::describe(left), data::describe(right));
  }
  const auto standardized = [&](const torch::Tensor& rows) {
    const torch::Tensor centered = rows - rows.mean(0);
    return centered * (centered.square().mean(0) + options_.eps).rsqrt();
  };
  // In mixed precision the product has 16 bits, which are too few for the difference of sums below.
  const torch::Tensor correlations =
      widened(standardized(left).t().mm(standardized(right))) / static_cast<double>(left.size(0));
  const torch::Tensor diagonal = correlations.diagonal();
  const torch::Tensor rest = correlations.square().sum() - diagonal.square().sum();
  return (1 - diagonal).square().sum() + options_.off_diagonal * rest;
}

void BarlowTwinsLossImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format("BarlowTwinsLoss(off_diagonal={}, eps={})", options_.off_diagonal,
                        options_.eps);
}

}  // namespace lockstep

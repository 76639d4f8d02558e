#include "lockstep/loss/nt_xent_loss.h"

#include <limits>
#include <ostream>

#include <torch/nn/functional/loss.h>
#include <torch/nn/functional/normalization.h>

#include "lockstep/base/error.h"
#include "lockstep/data/describe.h"

namespace lockstep {

NTXentLossImpl::NTXentLossImpl(NTXentLossOptions options) : options_(options) {
  // Written so that NaN is refused, too.
  if (!(options_.temperature > 0)) {
    throw ConfigError("NTXentLoss: temperature: expected a positive number, got {}",
                      options_.temperature);
  }
}

torch::Tensor NTXentLossImpl::forward(const torch::Tensor& left, const torch::Tensor& right) const {
  if (left.dim() != 2 || left.sizes() != right.sizes()) {
    throw ConfigError("NTXentLoss: expected two projections of one shape [N, D], got {} and {}",
                      data::describe(left), data::describe(right));
  }
  namespace F = torch::nn::functional;
  const std::int64_t samples = left.size(0);
  const auto rows = F::normalize(torch::cat({left, right}), F::NormalizeFuncOptions().dim(1));
  const auto own =
      torch::eye(2 * samples, torch::TensorOptions().dtype(torch::kBool).device(left.device()));
  const auto similarities = rows.mm(rows.t())
                                .div(options_.temperature)
                                .masked_fill(own, -std::numeric_limits<double>::infinity());
  const auto index =
      torch::arange(samples, torch::TensorOptions(torch::kInt64).device(left.device()));
  return F::cross_entropy(similarities, torch::cat({index + samples, index}));
}

void NTXentLossImpl::pretty_print(std::ostream& stream) const {
  stream << "NTXentLoss(temperature=" << options_.temperature << ")";
}

}  // namespace lockstep

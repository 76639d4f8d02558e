#include "lockstep/science/filters.h"

#include <cmath>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::science {
namespace {

torch::Tensor as_field(const torch::Tensor& field) {
  if (field.dim() < 1 || field.dim() > 3) {
    throw DataError("a field of 1 to 3 dimensions was expected, got one of {}", field.dim());
  }
  return field.detach().to(torch::kCPU, torch::kFloat64);
}

// The weighted sum of shifted copies along each axis: weight i belongs to the neighbour i - center.
torch::Tensor convolve(const torch::Tensor& field, const std::vector<double>& weights,
                       std::int64_t center) {
  torch::Tensor result = as_field(field);
  for (std::int64_t axis = 0; axis < field.dim(); ++axis) {
    torch::Tensor sum = torch::zeros_like(result);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      sum.add_(torch::roll(result, center - static_cast<std::int64_t>(i), axis), weights[i]);
    }
    result = sum;
  }
  return result;
}

}  // namespace

torch::Tensor spectral_filter(const torch::Tensor& field, double cutoff, const BoxLengths& box) {
  if (!(cutoff >= 0)) throw ConfigError("cutoff: expected a number >= 0, got {}", cutoff);
  const torch::Tensor values = as_field(field);
  const torch::Tensor keep = wave_numbers(field.sizes(), box) <= cutoff;
  return irfftn(rfftn(values) * keep, field.sizes());
}

torch::Tensor box_filter(const torch::Tensor& field, std::int64_t width) {
  if (width < 1) throw ConfigError("width: expected a positive integer, got {}", width);
  const std::vector<double> weights(static_cast<std::size_t>(width),
                                    1.0 / static_cast<double>(width));
  return convolve(field, weights, width / 2);
}

torch::Tensor gaussian_filter(const torch::Tensor& field, double sigma) {
  if (!(sigma > 0)) throw ConfigError("sigma: expected a number > 0, got {}", sigma);
  constexpr double kTruncate = 4.0;
  const auto radius = static_cast<std::int64_t>(kTruncate * sigma + 0.5);
  std::vector<double> weights;
  double total = 0;
  for (std::int64_t i = -radius; i <= radius; ++i) {
    weights.push_back(std::exp(-0.5 * static_cast<double>(i * i) / (sigma * sigma)));
    total += weights.back();
  }
  for (double& weight : weights) weight /= total;
  return convolve(field, weights, radius);
}

}  // namespace lockstep::science

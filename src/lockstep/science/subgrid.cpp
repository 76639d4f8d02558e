#include "lockstep/science/subgrid.h"

#include <functional>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::science {
namespace {

torch::Tensor as_velocity(const torch::Tensor& velocity) {
  const std::int64_t components = velocity.dim() > 1 ? velocity.size(0) : 0;
  if (velocity.dim() < 2 || velocity.dim() > 4 || components != velocity.dim() - 1) {
    throw DataError(
        "expected a velocity with as many components as dimensions, such as [3, N, N, N], got {} "
        "dimensions with {} components",
        velocity.dim() - 1, components);
  }
  return velocity.detach().to(torch::kCPU, torch::kFloat64);
}

// A tensor [D, D, …] whose elements are `element(i, j)`.
torch::Tensor tensor_of(std::int64_t size,
                        const std::function<torch::Tensor(std::int64_t, std::int64_t)>& element) {
  std::vector<torch::Tensor> rows;
  for (std::int64_t i = 0; i < size; ++i) {
    std::vector<torch::Tensor> row;
    for (std::int64_t j = 0; j < size; ++j) row.push_back(element(i, j));
    rows.push_back(torch::stack(row));
  }
  return torch::stack(rows);
}

torch::Tensor filtered(const torch::Tensor& tensor, const Filter& filter) {
  return tensor_of(tensor.size(0),
                   [&](std::int64_t i, std::int64_t j) { return filter(tensor[i][j]); });
}

// Central differences, with a spacing for each direction.
torch::Tensor gradient_of(const torch::Tensor& u, const std::vector<double>& spacings) {
  return tensor_of(u.size(0), [&](std::int64_t i, std::int64_t j) {
    return (torch::roll(u[i], -1, j) - torch::roll(u[i], 1, j)) /
           (2.0 * spacings[static_cast<std::size_t>(j)]);
  });
}

// By the options' box, if they have one, or else by their spacing.
template <typename Options>
torch::Tensor gradient_in(const torch::Tensor& velocity, const Options& options) {
  return options.box.empty() ? velocity_gradient(velocity, options.spacing)
                             : velocity_gradient(velocity, options.box);
}

torch::Tensor strain_of(const torch::Tensor& gradient) {
  return 0.5 * (gradient + gradient.transpose(0, 1));
}

torch::Tensor magnitude_of(const torch::Tensor& strain) {
  return (2.0 * strain * strain).sum(torch::IntArrayRef({0, 1})).sqrt();
}

torch::Tensor without_trace(const torch::Tensor& stress) {
  const std::int64_t size = stress.size(0);
  const torch::Tensor trace = torch::diagonal(stress, 0, 0, 1).sum(-1) / static_cast<double>(size);
  return tensor_of(size, [&](std::int64_t i, std::int64_t j) {
    return i == j ? stress[i][j] - trace : stress[i][j];
  });
}

}  // namespace

torch::Tensor velocity_gradient(const torch::Tensor& velocity, double spacing) {
  const torch::Tensor u = as_velocity(velocity);
  return gradient_of(u, std::vector<double>(static_cast<std::size_t>(u.size(0)), spacing));
}

torch::Tensor velocity_gradient(const torch::Tensor& velocity, const BoxLengths& box) {
  if (box.empty()) return velocity_gradient(velocity, 1.0);
  const torch::Tensor u = as_velocity(velocity);
  const auto points = u.sizes().slice(1);
  wave_number_scales(points, box);  // throws if it does not fit
  std::vector<double> spacings;
  for (std::size_t j = 0; j < box.size(); ++j) {
    spacings.push_back(box[j] / static_cast<double>(points[j]));
  }
  return gradient_of(u, spacings);
}

torch::Tensor reynolds_stress(const torch::Tensor& velocity, const Filter& filter) {
  const torch::Tensor u = as_velocity(velocity);
  std::vector<torch::Tensor> smooth;
  for (std::int64_t i = 0; i < u.size(0); ++i) smooth.push_back(filter(u[i]));
  return tensor_of(u.size(0), [&](std::int64_t i, std::int64_t j) {
    return filter(u[i] * u[j]) -
           smooth[static_cast<std::size_t>(i)] * smooth[static_cast<std::size_t>(j)];
  });
}

torch::Tensor gradient_model(const torch::Tensor& velocity, const GradientModelOptions& options) {
  const torch::Tensor gradient = gradient_in(velocity, options);
  const double factor = options.filter_width * options.filter_width / 12.0;
  return tensor_of(gradient.size(0), [&](std::int64_t i, std::int64_t j) {
    return factor * (gradient[i] * gradient[j]).sum(0);
  });
}

SmagorinskyModel dynamic_smagorinsky(const torch::Tensor& velocity, const Filter& test_filter,
                                     const SmagorinskyOptions& options) {
  const torch::Tensor gradient = gradient_in(velocity, options);
  if (gradient.size(0) == 1) {
    throw DataError("dynamic_smagorinsky: expected two or three dimensions, got one");
  }
  const torch::Tensor strain = without_trace(strain_of(gradient));
  const torch::Tensor magnitude = magnitude_of(strain);
  // The stress that the test filter removes from the filtered velocity is known. The coefficient is
  // chosen so that the model gives the same stress.
  const torch::Tensor known = without_trace(reynolds_stress(velocity, test_filter));
  const torch::Tensor test_strain = filtered(strain, test_filter);
  const torch::Tensor test_magnitude = magnitude_of(test_strain);
  const double width2 = options.filter_width * options.filter_width;
  const double ratio2 = options.width_ratio * options.width_ratio;
  const torch::Tensor model =
      2.0 * width2 *
      (filtered(magnitude * strain, test_filter) - ratio2 * test_magnitude * test_strain);
  const double norm = (model * model).sum().item<double>();
  SmagorinskyModel result;
  result.coefficient = norm > 0 ? (known * model).sum().item<double>() / norm : 0.0;
  result.stress = -2.0 * result.coefficient * width2 * magnitude * strain;
  return result;
}

}  // namespace lockstep::science

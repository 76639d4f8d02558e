#include "lockstep/science/spectrum.h"

#include <algorithm>
#include <cmath>

#include <ATen/CPUGeneratorImpl.h>

#include "lockstep/base/error.h"

namespace lockstep::science {
namespace {

// |u_k|² of a scalar field. Each mode of the half transform counts as often as it occurs in the
// whole transform.
torch::Tensor mode_energy(const torch::Tensor& field) {
  const torch::Tensor transform = rfftn(field) / static_cast<double>(field.numel());
  torch::Tensor energy = torch::real(transform * transform.conj());
  const std::int64_t size = field.size(-1);
  const std::int64_t doubled = (size - 1) / 2;  // modes 1 to this also occur in the other half
  if (doubled > 0) energy.narrow(-1, 1, doubled).mul_(2.0);
  return energy;
}

// The smallest Nyquist wave number of the dimensions.
std::int64_t largest_shell(torch::IntArrayRef shape, const BoxLengths& box) {
  const auto scales = wave_number_scales(shape, box);
  double smallest = HUGE_VAL;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    smallest = std::min(smallest, static_cast<double>(shape[axis]) / 2 * scales[axis]);
  }
  return static_cast<std::int64_t>(smallest + 1e-9);
}

}  // namespace

Spectrum power_spectrum(const torch::Tensor& field, const BoxLengths& box) {
  if (field.dim() < 2 || field.dim() > 4) {
    throw DataError("a field [C, N, …] of 1 to 3 dimensions was expected, got {} dimensions",
                    field.dim());
  }
  const auto shape = field.sizes().slice(1);
  torch::Tensor energy;
  for (std::int64_t c = 0; c < field.size(0); ++c) {
    const torch::Tensor one = mode_energy(field[c]);
    energy = energy.defined() ? energy + one : one;
  }
  const torch::Tensor k = wave_numbers(shape, box);
  // One half is always rounded up (not to the even number), so shells have equal widths also if k
  // is a multiple of one half.
  torch::Tensor shells = (k + 0.5).floor().to(torch::kInt64);
  shells = torch::where(k > 0, shells.clamp_min(1), shells).expand_as(energy);
  const std::int64_t largest = largest_shell(shape, box);
  const torch::Tensor sums = torch::bincount(shells.flatten(), energy.flatten(), largest + 1);
  Spectrum spectrum;
  for (std::int64_t k = 1; k <= largest; ++k) {
    spectrum.wave_number.push_back(static_cast<double>(k));
    spectrum.energy.push_back(0.5 * sums[k].item<double>());
  }
  return spectrum;
}

Spectrum windowed_spectrum(const torch::Tensor& part, const BoxLengths& box) {
  torch::Tensor window = torch::ones({1}, torch::kFloat64);
  for (std::int64_t axis = 1; axis < part.dim(); ++axis) {
    // The window is taken midway between its usual points, so that it is zero at no point and no
    // value at an edge is lost.
    const std::int64_t size = part.size(axis);
    const torch::Tensor at = (torch::arange(size, torch::kFloat64) + 0.5) / size;
    const torch::Tensor side = torch::sin(M_PI * at).square();
    window = window.unsqueeze(-1) * side;
  }
  const torch::Tensor values = part.detach().to(torch::kCPU, torch::kFloat64);
  std::vector<std::int64_t> space;
  for (std::int64_t axis = 1; axis < part.dim(); ++axis) space.push_back(axis);
  const torch::Tensor centred = values - values.mean(space, /*keepdim=*/true);
  return power_spectrum(centred * window / window.square().mean().sqrt(), box);
}

std::vector<double> kolmogorov_line(const Spectrum& spectrum) {
  std::vector<double> line;
  if (spectrum.energy.empty()) return line;
  const std::size_t anchor = std::min<std::size_t>(2, spectrum.energy.size() - 1);
  for (const double k : spectrum.wave_number) {
    line.push_back(spectrum.energy[anchor] *
                   std::pow(k / spectrum.wave_number[anchor], -5.0 / 3.0));
  }
  return line;
}

double spectral_slope(const Spectrum& spectrum, const WaveNumbers& range) {
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (std::size_t i = 0; i < spectrum.energy.size(); ++i) {
    const double k = spectrum.wave_number[i];
    if (k < range.first || k > range.last || spectrum.energy[i] <= 0) continue;
    const double a = std::log(k), b = std::log(spectrum.energy[i]);
    n += 1, x += a, y += b, xx += a * a, xy += a * b;
  }
  if (n < 2) {
    throw ConfigError("spectral_slope: expected two wave numbers or more from {} to {}, got fewer",
                      range.first, range.last);
  }
  return (n * xy - x * y) / (n * xx - x * x);
}

torch::Tensor synthetic_turbulence(const TurbulenceOptions& options) {
  const torch::IntArrayRef shape(options.shape);
  const std::int64_t dimensions = static_cast<std::int64_t>(shape.size());
  auto generator = at::detail::createCPUGenerator(options.seed);
  // The transform of white noise is multiplied by an amplitude for the slope, so the field is real
  // without further work. A shell has about k^(d - 1) modes, and each has the square of the
  // amplitude as its energy.
  const torch::Tensor k = wave_numbers(shape);
  const double power = (options.slope - static_cast<double>(dimensions - 1)) / 2.0;
  torch::Tensor amplitude =
      torch::where(k > 0, k.clamp_min(options.peak).pow(power), torch::zeros_like(k));
  std::vector<torch::Tensor> transforms;
  for (std::int64_t c = 0; c < options.components; ++c) {
    const torch::Tensor noise = torch::randn(shape, generator, torch::kFloat64);
    transforms.push_back(rfftn(noise) * amplitude);
  }
  if (options.components == dimensions && dimensions > 1) {
    // Removes the part along k, which is the one with divergence.
    const torch::Tensor k2 = torch::where(k > 0, k * k, torch::ones_like(k));
    const auto scales = wave_number_scales(shape);
    std::vector<torch::Tensor> axes;
    for (std::size_t c = 0; c < transforms.size(); ++c) {
      axes.push_back(axis_wave_numbers(shape, c) * scales[c]);
    }
    torch::Tensor along = torch::zeros_like(transforms[0]);
    for (std::size_t c = 0; c < transforms.size(); ++c) along = along + transforms[c] * axes[c];
    for (std::size_t c = 0; c < transforms.size(); ++c) {
      transforms[c] = transforms[c] - along * axes[c] / k2;
    }
  }
  std::vector<torch::Tensor> fields;
  for (const torch::Tensor& transform : transforms) fields.push_back(irfftn(transform, shape));
  const torch::Tensor field = torch::stack(fields);
  return (field / field.std(false)).to(torch::kFloat32);
}

}  // namespace lockstep::science

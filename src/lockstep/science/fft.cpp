#include "lockstep/science/fft.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <vector>

#include <fftw3.h>

#include "lockstep/base/error.h"

namespace lockstep::science {
namespace {

std::vector<int> dimensions(torch::IntArrayRef shape) {
  if (shape.empty() || shape.size() > 3) {
    throw DataError("a field of 1 to 3 dimensions was expected, got one of {}", shape.size());
  }
  std::vector<int> sizes;
  for (const std::int64_t size : shape) {
    if (size < 1) throw DataError("a field without elements has no spectrum");
    sizes.push_back(static_cast<int>(size));
  }
  return sizes;
}

std::vector<std::int64_t> halved(torch::IntArrayRef shape) {
  std::vector<std::int64_t> sizes = shape.vec();
  sizes.back() = sizes.back() / 2 + 1;
  return sizes;
}

// Several threads may run FFTW's plans at once, but only one at a time may make a plan.
std::mutex& planner() {
  static std::mutex mutex;
  return mutex;
}

void run(fftw_plan plan) {
  fftw_execute(plan);
  const std::lock_guard lock(planner());
  fftw_destroy_plan(plan);
}

}  // namespace

torch::Tensor rfftn(const torch::Tensor& field) {
  const auto sizes = dimensions(field.sizes());
  torch::Tensor input = field.detach().to(torch::kCPU, torch::kFloat64).contiguous();
  torch::Tensor output = torch::empty(halved(field.sizes()), torch::kComplexDouble);
  fftw_plan plan = nullptr;
  {
    const std::lock_guard lock(planner());
    plan = fftw_plan_dft_r2c(static_cast<int>(sizes.size()), sizes.data(), input.data_ptr<double>(),
                             reinterpret_cast<fftw_complex*>(output.data_ptr()),
                             FFTW_ESTIMATE | FFTW_PRESERVE_INPUT);
  }
  run(plan);
  return output;
}

torch::Tensor irfftn(const torch::Tensor& transform, torch::IntArrayRef shape) {
  const auto sizes = dimensions(shape);
  if (transform.sizes() != torch::IntArrayRef(halved(shape))) {
    throw DataError("irfftn: the transform does not belong to a field of the given shape");
  }
  // A copy, because FFTW overwrites its input.
  torch::Tensor input = transform.to(torch::kComplexDouble).contiguous().clone();
  torch::Tensor output = torch::empty(shape, torch::kFloat64);
  fftw_plan plan = nullptr;
  {
    const std::lock_guard lock(planner());
    plan = fftw_plan_dft_c2r(static_cast<int>(sizes.size()), sizes.data(),
                             reinterpret_cast<fftw_complex*>(input.data_ptr()),
                             output.data_ptr<double>(), FFTW_ESTIMATE | FFTW_DESTROY_INPUT);
  }
  run(plan);
  return output / static_cast<double>(output.numel());
}

torch::Tensor axis_wave_numbers(torch::IntArrayRef shape, std::size_t axis) {
  const std::int64_t size = shape[axis];
  const bool last = axis + 1 == shape.size();
  torch::Tensor k = torch::arange(last ? size / 2 + 1 : size, torch::kFloat64);
  if (!last) k = torch::where(k < (size + 1) / 2, k, k - static_cast<double>(size));
  std::vector<std::int64_t> view(shape.size(), 1);
  view[axis] = k.size(0);
  return k.reshape(view);
}

std::vector<double> wave_number_scales(torch::IntArrayRef shape, const BoxLengths& box) {
  if (!box.empty() && box.size() != shape.size()) {
    throw ConfigError("box: expected {} lengths, one for each dimension of the field, got {}",
                      shape.size(), box.size());
  }
  for (const double length : box) {
    if (!(length > 0) || !std::isfinite(length)) {
      throw ConfigError("box: expected positive lengths, got {}", length);
    }
  }
  const BoxLengths lengths = box.empty() ? BoxLengths(shape.begin(), shape.end()) : box;
  const double shortest = std::ranges::min(lengths);
  std::vector<double> scales;
  for (const double length : lengths) scales.push_back(shortest / length);
  return scales;
}

torch::Tensor wave_numbers(torch::IntArrayRef shape, const BoxLengths& box) {
  dimensions(shape);
  const auto scales = wave_number_scales(shape, box);
  torch::Tensor squares = torch::zeros({1}, torch::kFloat64);
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    squares = squares + (axis_wave_numbers(shape, axis) * scales[axis]).square();
  }
  return squares.sqrt();
}

}  // namespace lockstep::science

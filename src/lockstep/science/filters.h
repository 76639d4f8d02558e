// Filters that keep the large scales of a periodic field of 1 to 3 dimensions. All return doubles.
#pragma once

#include <functional>

#include <torch/types.h>

#include "lockstep/science/fft.h"

namespace lockstep::science {

// Sharp in Fourier space: keeps the modes whose wave number |k| is at most `cutoff`, in waves in
// the shortest side of the box.
torch::Tensor spectral_filter(const torch::Tensor& field, double cutoff,
                              const BoxLengths& box = {});

// The mean over `width` neighbours in each dimension: scipy.ndimage.uniform_filter(mode="wrap").
torch::Tensor box_filter(const torch::Tensor& field, std::int64_t width);

// scipy.ndimage.gaussian_filter(sigma, mode="wrap", truncate=4).
torch::Tensor gaussian_filter(const torch::Tensor& field, double sigma);

// Any of these filters, as an argument of functions that need one.
using Filter = std::function<torch::Tensor(const torch::Tensor&)>;

}  // namespace lockstep::science

// How a field's energy is distributed over scales.
#pragma once

#include <vector>

#include <torch/types.h>

#include "lockstep/science/fft.h"

namespace lockstep::science {

struct Spectrum {
  std::vector<double> wave_number;  // 1, 2, 3, … waves in the shortest side
  std::vector<double> energy;       // of the modes within half a wave number of it
};

// The spectrum of a periodic field [C, N, …] of 1 to 3 dimensions with C components (1: a scalar):
// half the sum of |u_k|² over each shell. The sum over all shells and the mean is half the mean
// square of the field. Shells reach up to the smallest of the dimensions' Nyquist wave numbers;
// larger shells would lie partly outside of the grid's modes. Wave numbers count waves in the
// shortest side, and `box` has the lengths of all sides. A mode longer than the shortest side
// counts in the first shell. Throws ConfigError if `box` does not fit the field.
Spectrum power_spectrum(const torch::Tensor& field, const BoxLengths& box = {});

// The same for a part [C, N, …] that was cut out of a larger field. Such a part is not periodic,
// and the jumps at its edges would add energy at all scales. So it is tapered by a Hann window, and
// then scaled to the energy that it had before.
Spectrum windowed_spectrum(const torch::Tensor& part, const BoxLengths& box = {});

// Kolmogorov's k^(-5/3), through the spectrum's energy at its third wave number (or its last).
std::vector<double> kolmogorov_line(const Spectrum& spectrum);

struct WaveNumbers {
  double first = 0;
  double last = 0;
};

// The slope of log(energy) over log(wave number) in that range, by least squares.
double spectral_slope(const Spectrum& spectrum, const WaveNumbers& range);

struct TurbulenceOptions {
  std::vector<std::int64_t> shape = {64, 64, 64};
  double slope = -5.0 / 3.0;  // of the energy spectrum
  double peak = 2.0;          // wave number (waves in the shortest side) below which it is flat
  std::uint64_t seed = 0;
  // Of a vector field. With as many components as dimensions, the field has no divergence.
  std::int64_t components = 1;
};

// A random field [components, …] with that spectrum, on a grid of equal spacing, for use in place
// of a simulation. The seed determines the phases. The mean is 0 and the standard deviation is 1.
torch::Tensor synthetic_turbulence(const TurbulenceOptions& options = {});

}  // namespace lockstep::science

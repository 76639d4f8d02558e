// Fourier transforms of real fields in one to three dimensions, by FFTW, in double precision.
#pragma once

#include <torch/types.h>

namespace lockstep::science {

// numpy.fft.rfftn of a real field of 1 to 3 dimensions: complex doubles, the last dimension halved.
torch::Tensor rfftn(const torch::Tensor& field);

// The field of `shape` that this is the transform of, scaled as numpy.fft.irfftn has it.
torch::Tensor irfftn(const torch::Tensor& transform, torch::IntArrayRef shape);

// One dimension's wave numbers, shaped to be multiplied with a transform of a field of `shape`:
// integers, as numpy.fft.fftfreq times n has them; of the last dimension, half of them.
torch::Tensor axis_wave_numbers(torch::IntArrayRef shape, std::size_t axis);

// The wave number |k| of each element of a transform of a field of `shape`: the length
// of those of all dimensions.
torch::Tensor wave_numbers(torch::IntArrayRef shape);

}  // namespace lockstep::science

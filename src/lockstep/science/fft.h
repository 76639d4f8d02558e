// Fourier transforms of real fields in one to three dimensions, by FFTW, in double precision.
#pragma once

#include <vector>

#include <torch/types.h>

namespace lockstep::science {

// numpy.fft.rfftn of a real field of 1 to 3 dimensions: complex doubles, the last dimension halved.
torch::Tensor rfftn(const torch::Tensor& field);

// The inverse of rfftn: a field of `shape`, scaled as numpy.fft.irfftn scales it.
torch::Tensor irfftn(const torch::Tensor& transform, torch::IntArrayRef shape);

// One dimension's wave numbers, shaped to be multiplied with a transform of a field of `shape`.
// They are integers, as numpy.fft.fftfreq times n gives them; for the last dimension, half of them.
torch::Tensor axis_wave_numbers(torch::IntArrayRef shape, std::size_t axis);

// The lengths of a box's sides, in any unit. None: they are in proportion to the number of points,
// because the grid's spacing is the same in all directions.
using BoxLengths = std::vector<double>;

// One factor per dimension. Integer wave numbers times these factors are in one unit in all
// dimensions: waves in the shortest side. All are 1 for a cube. Throws ConfigError if `box` has
// another number of sides than `shape`, or a side that is not positive.
std::vector<double> wave_number_scales(torch::IntArrayRef shape, const BoxLengths& box = {});

// The wave number |k| of each element of a transform of a field of `shape`, in waves in the
// shortest side: the length of the vector of all dimensions' wave numbers.
torch::Tensor wave_numbers(torch::IntArrayRef shape, const BoxLengths& box = {});

}  // namespace lockstep::science

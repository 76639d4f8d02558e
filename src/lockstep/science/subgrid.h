// The stress of the scales that a filter removes from a velocity field, and classical models of
// that stress, as baselines for learned models. Fields are periodic, [3, N, N, N] (or [2, N, N],
// [1, N]); results are [D, D, …] in double.
#pragma once

#include <torch/types.h>

#include "lockstep/science/fft.h"
#include "lockstep/science/filters.h"

namespace lockstep::science {

// ∂u_i/∂x_j as [D, D, …], by central differences over cells of `spacing`.
torch::Tensor velocity_gradient(const torch::Tensor& velocity, double spacing = 1.0);
// The same in a box whose sides have these lengths, so that the spacing may differ from direction
// to direction. An empty box has a spacing of 1. Throws ConfigError if `box` does not fit the
// field.
torch::Tensor velocity_gradient(const torch::Tensor& velocity, const BoxLengths& box);

// The stress of the scales that the filter removes: filter(u_i u_j) - filter(u_i) filter(u_j).
torch::Tensor reynolds_stress(const torch::Tensor& velocity, const Filter& filter);

struct GradientModelOptions {
  double filter_width = 1.0;
  double spacing = 1.0;  // of the grid, in the same unit
  BoxLengths box = {};   // lengths of the field's sides (FieldData's box), instead of the spacing
};

// The gradient (Clark) model: width² / 12 Σ_k ∂_k u_i ∂_k u_j of a filtered velocity.
torch::Tensor gradient_model(const torch::Tensor& velocity,
                             const GradientModelOptions& options = {});

struct SmagorinskyOptions {
  double filter_width = 1.0;  // of the filter that was applied to the velocity
  double width_ratio = 2.0;   // width of the test filter / filter_width
  double spacing = 1.0;       // of the grid
  BoxLengths box = {};        // lengths of the field's sides, instead of the spacing
};

struct SmagorinskyModel {
  torch::Tensor stress;    // its trace is zero
  double coefficient = 0;  // C_s², the same everywhere
};

// The dynamic Smagorinsky model of Germano and Lilly: -2 C_s² width² |S| S_ij, with C_s² by least
// squares over the whole field from the scales between the filter and a wider test filter. S_ij is
// the strain without its trace, so the stress of a flow with divergence has no trace either. It
// needs two or three dimensions, because in one dimension nothing is left without the trace. Throws
// DataError for one dimension.
SmagorinskyModel dynamic_smagorinsky(const torch::Tensor& velocity, const Filter& test_filter,
                                     const SmagorinskyOptions& options = {});

}  // namespace lockstep::science

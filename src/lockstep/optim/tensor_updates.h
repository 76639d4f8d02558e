// The updates of kernels.h as torch operations on whole tensors: slower, but for every type and
// device that torch supports.
#pragma once

#include <array>

#include <torch/types.h>

#include "lockstep/optim/flat_parameters.h"
#include "lockstep/optim/kernels.h"
#include "lockstep/optim/update.h"

namespace lockstep::optim {

struct UpdateTensors {
  torch::Tensor values;
  torch::Tensor grads;
  std::array<torch::Tensor, 3> state;  // in the order in which the update names them
  // One number of type double on the device of the others, by which LambUpdate multiplies its step
  // size; undefined: 1.
  torch::Tensor factor = {};
};

// The memory of the tensors, of type T.
template <typename T>
kernels::Arrays<T> arrays_of(const UpdateTensors& tensors) {
  kernels::Arrays<T> arrays{.values = tensors.values.data_ptr<T>(),
                            .grads = tensors.grads.data_ptr<T>()};
  for (std::size_t i = 0; i < arrays.state.size(); ++i) {
    if (tensors.state[i].defined()) arrays.state[i] = tensors.state[i].data_ptr<T>();
  }
  if (tensors.factor.defined()) arrays.factor = tensors.factor.data_ptr<double>();
  return arrays;
}

// Views of the range's elements.
UpdateTensors narrowed(const UpdateTensors& tensors, const ElementRange& range);

void apply(const AdamUpdate& update, const UpdateTensors& tensors);
void apply(const SGDUpdate& update, const UpdateTensors& tensors);
void apply(const RMSpropUpdate& update, const UpdateTensors& tensors);
void apply(const AdagradUpdate& update, const UpdateTensors& tensors);
void apply(const RAdamUpdate& update, const UpdateTensors& tensors);
void apply(const NAdamUpdate& update, const UpdateTensors& tensors);
void apply(const AdamaxUpdate& update, const UpdateTensors& tensors);
void apply(const AdadeltaUpdate& update, const UpdateTensors& tensors);
void apply(const LionUpdate& update, const UpdateTensors& tensors);
void apply(const LambMoments& update, const UpdateTensors& tensors);
void apply(const LambUpdate& update, const UpdateTensors& tensors);
void apply(const LookaheadUpdate& update, const UpdateTensors& tensors);

// The ratio of Lamb for the parameter whose elements the tensors are: the norm of p, which is at
// most `max_weight_norm`, divided by that of u, or 1 if one of them is zero. One number of type
// double on the device of the tensors, which the processor does not wait for.
torch::Tensor lamb_ratio(const LambUpdate& update, const UpdateTensors& tensors,
                         double max_weight_norm);

}  // namespace lockstep::optim

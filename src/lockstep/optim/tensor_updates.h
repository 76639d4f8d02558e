// The updates of kernels.h as torch operations on whole tensors: slower, but for every type and
// device that torch supports.
#pragma once

#include <array>

#include <torch/types.h>

#include "lockstep/optim/flat_parameters.h"
#include "lockstep/optim/update.h"

namespace lockstep::optim {

struct UpdateTensors {
  torch::Tensor values;
  torch::Tensor grads;
  std::array<torch::Tensor, 3> state;  // in the order in which the update names them
};

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

// Over all elements of the tensors.
LambSquares lamb_squares(const LambUpdate& update, const UpdateTensors& tensors);

}  // namespace lockstep::optim

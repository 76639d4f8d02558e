#include "lockstep/runner/supervised.h"

#include <typeinfo>

#include "lockstep/compute/planned_sequential.h"

namespace lockstep {

void SupervisedRunner::handle_batch(State& state) {
  const compute::DirectGradients direct(state.may_write_gradients && state.criterion.is_module() &&
                                        !uses_gradients());
  const torch::Tensor outputs = state.model(state.batch[keys_.input_key]);
  state.batch.set(keys_.output_key, outputs);
  if (!state.criterion) return;
  const torch::Tensor& targets = state.batch[keys_.target_key];
  const LossOver over = state.criterion.over(outputs, targets);
  // A mean over nothing would be NaN. The loss is zero instead, but computed from the outputs,
  // because with synchronised batch norm every worker has to take part in backward.
  const bool is_empty = over == mean_over(0);
  state.set_loss(is_empty ? (outputs * 0).sum() : state.criterion(outputs, targets), over);
}

std::optional<SupervisedKeys> SupervisedRunner::batch_keys() const {
  return typeid(*this) == typeid(SupervisedRunner) ? std::optional(keys_) : std::nullopt;
}

Batch SupervisedRunner::predict_batch(const Model& model, const Batch& batch) {
  return {{keys_.output_key, model(batch[keys_.input_key])}};
}

}  // namespace lockstep

#include "lockstep/runner/supervised.h"

#include <typeinfo>

namespace lockstep {

void SupervisedRunner::handle_batch(State& state) {
  const torch::Tensor outputs = state.model(state.batch[keys_.input_key]);
  state.batch.set(keys_.output_key, outputs);
  if (!state.criterion) return;
  const torch::Tensor& targets = state.batch[keys_.target_key];
  state.batch.set(keys_.loss_key, state.criterion(outputs, targets));
  if (state.is_train && state.criterion.mean() == LossMean::kTargets) {
    state.loss_weight = state.criterion.weight_of(targets);
  }
}

Batch SupervisedRunner::predict_batch(const Model& model, const Batch& batch) {
  return {{keys_.output_key, model(batch[keys_.input_key])}};
}

// A derived class may override handle_batch and record more.
bool SupervisedRunner::adds_only_loss() const {
  return typeid(*this) == typeid(SupervisedRunner);
}

}  // namespace lockstep

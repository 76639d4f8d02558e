#include "lockstep/runner/supervised.h"

#include <typeinfo>

namespace lockstep {

void SupervisedRunner::handle_batch(State& state) {
  const torch::Tensor outputs = state.model(state.batch[keys_.input_key]);
  state.batch.set(keys_.output_key, outputs);
  if (!state.criterion) return;
  state.batch.set(keys_.loss_key, state.criterion(outputs, state.batch[keys_.target_key]));
}

Batch SupervisedRunner::predict_batch(const Model& model, const Batch& batch) {
  return {{keys_.output_key, model(batch[keys_.input_key])}};
}

// A derived class may override handle_batch and record more.
bool SupervisedRunner::adds_only_loss() const {
  return typeid(*this) == typeid(SupervisedRunner);
}

}  // namespace lockstep

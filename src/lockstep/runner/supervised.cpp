#include "lockstep/runner/supervised.h"

#include <typeinfo>

namespace lockstep {

void SupervisedRunner::handle_batch(State& state) {
  const torch::Tensor outputs = state.model(state.batch[keys_.input_key]);
  state.batch.set(keys_.output_key, outputs);
  if (!state.criterion) return;
  const torch::Tensor& targets = state.batch[keys_.target_key];
  if (state.criterion.mean() == LossMean::kTargets) {
    state.loss_weight = state.criterion.weight_of(targets);
  }
  // The mean over nothing is no number; nothing is what there is to learn from it.
  const bool is_empty = state.loss_weight == 0.0;
  state.batch.set(keys_.loss_key,
                  is_empty ? (outputs * 0).sum() : state.criterion(outputs, targets));
}

Batch SupervisedRunner::predict_batch(const Model& model, const Batch& batch) {
  return {{keys_.output_key, model(batch[keys_.input_key])}};
}

// A derived class may override handle_batch and record more.
bool SupervisedRunner::adds_only_loss() const {
  return typeid(*this) == typeid(SupervisedRunner);
}

}  // namespace lockstep

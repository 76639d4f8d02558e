#include "lockstep/runner/supervised.h"

#include <algorithm>
#include <typeinfo>
#include <utility>

#include "lockstep/compute/planned_sequential.h"

namespace lockstep {

SupervisedRunner::SupervisedRunner(SupervisedKeys keys) : keys_(std::move(keys)) {
  check_keys(keys_);
  terms_ = loss_terms(keys_);
}

void SupervisedRunner::handle_batch(State& state) {
  // A function as criterion may compute gradients itself.
  const bool only_modules =
      has_criterion(state) && std::ranges::all_of(terms_, [&](const LossTerm& term) {
        return criterion_of(state, term.criterion).is_module();
      });
  const compute::DirectGradients direct(state.may_write_gradients && only_modules &&
                                        !uses_gradients());
  forward_keys(state.model, keys_, state.batch, state.batch);
  if (state.outputs_ready) state.outputs_ready();  // in a run
  set_losses(state, keys_, terms_);
}

std::optional<std::vector<std::string>> SupervisedRunner::metric_names() const {
  if (typeid(*this) != typeid(SupervisedRunner)) return std::nullopt;
  return loss_metrics(keys_);
}

std::optional<SupervisedKeys> SupervisedRunner::batch_keys() const {
  return typeid(*this) == typeid(SupervisedRunner) ? std::optional(keys_) : std::nullopt;
}

Batch SupervisedRunner::predict_batch(const Model& model, const Batch& batch) {
  Batch outputs;
  forward_keys(model, keys_, batch, outputs);
  return outputs;
}

}  // namespace lockstep

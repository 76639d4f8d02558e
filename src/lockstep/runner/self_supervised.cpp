#include "lockstep/runner/self_supervised.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

const std::string kLeft = "_left";
const std::string kRight = "_right";

}  // namespace

SelfSupervisedRunner::SelfSupervisedRunner(SelfSupervisedKeys keys) : keys_(std::move(keys)) {
  std::vector<std::string> names = {keys_.input_key, keys_.augment_prefix, keys_.embedding_prefix,
                                    keys_.projection_prefix, keys_.loss_key};
  std::ranges::sort(names);
  if (names.front().empty()) {
    throw ConfigError("SelfSupervisedRunner: expected keys and prefixes, got an empty one");
  }
  const auto twice = std::ranges::adjacent_find(names);
  if (twice != names.end()) {
    throw ConfigError(
        "SelfSupervisedRunner: '{}' is there twice: every key and prefix needs its own", *twice);
  }
}

void SelfSupervisedRunner::handle_batch(State& state) {
  augment(state.batch);
  for (const std::string& side : {kLeft, kRight}) {
    forward(state.model, state.batch[keys_.augment_prefix + side], side, state.batch);
  }
  set_losses(state, SupervisedKeys{.loss_key = keys_.loss_key},
             std::vector<LossTerm>{LossTerm{.output = keys_.projection_prefix + kLeft,
                                            .target = keys_.projection_prefix + kRight,
                                            .name = keys_.projection_prefix}});
}

void SelfSupervisedRunner::augment(Batch& batch) const {
  const std::string left = keys_.augment_prefix + kLeft;
  const std::string right = keys_.augment_prefix + kRight;
  if (keys_.augment) {
    const torch::Tensor input = batch[keys_.input_key];
    batch.set(left, keys_.augment.apply(input));
    batch.set(right, keys_.augment.apply(input));
    return;
  }
  if (batch.contains(left) && batch.contains(right)) return;
  throw ConfigError(
      "SelfSupervisedRunner: the batch has no '{}' and '{}' (it has: {}): set augment, which makes "
      "them of '{}', or use a data set that has both",
      left, right, fmt::join(batch.keys(), ", "), keys_.input_key);
}

void SelfSupervisedRunner::forward(const Model& model, const torch::Tensor& input,
                                   const std::string& side, Batch& to) const {
  const Outputs outputs = model.outputs(input);
  if (outputs.is_named()) {
    to.set(keys_.projection_prefix + side, outputs[keys_.projection_prefix]);
    const Batch named = outputs.to_batch();
    if (named.contains(keys_.embedding_prefix)) {
      to.set(keys_.embedding_prefix + side, named[keys_.embedding_prefix]);
    }
    return;
  }
  if (outputs.count() > 2) {
    throw ConfigError(
        "SelfSupervisedRunner: the model returned {}: expected a projection, or an embedding and "
        "its projection",
        outputs.describe());
  }
  if (outputs.count() == 2) to.set(keys_.embedding_prefix + side, outputs[0]);
  to.set(keys_.projection_prefix + side, outputs[outputs.count() - 1]);
}

Batch SelfSupervisedRunner::predict_batch(const Model& model, const Batch& batch) {
  Batch outputs;
  forward(model, batch[keys_.input_key], "", outputs);
  return outputs;
}

}  // namespace lockstep

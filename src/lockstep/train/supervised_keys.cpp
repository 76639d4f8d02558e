#include "lockstep/train/supervised_keys.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/option_text.h"
#include "lockstep/base/text.h"
#include "lockstep/train/state.h"

namespace lockstep {
namespace {

void check_key_list(const char* option, const std::vector<std::string>& keys) {
  for (auto key = keys.begin(); key != keys.end(); ++key) {
    if (key->empty()) throw ConfigError("{}: expected names, got an empty one", option);
    if (std::find(keys.begin(), key, *key) != key) {
      throw ConfigError("{}: '{}' is there twice", option, *key);
    }
  }
}

void check_instead(const char* one, const std::string& value, const std::string& fallback,
                   bool several) {
  if (!several || value == fallback) return;
  throw ConfigError("{0}: expected {0} or {0}s, got both; {0} is '{1}'", one, value);
}

// The batch that a model gets whose forward takes one.
Batch selected(const Batch& from, const std::vector<std::string>& keys) {
  return Outputs(from).to_batch(keys);
}

Outputs outputs_for(const Model& model, const SupervisedKeys& keys, const Batch& from) {
  if (model.takes_batch()) {
    return model.outputs(keys.input_keys.empty() ? from : selected(from, keys.input_keys));
  }
  if (keys.input_keys.empty()) return model.outputs(from[keys.input_key]);
  std::vector<torch::Tensor> inputs;
  for (const std::string& key : keys.input_keys) inputs.push_back(from[key]);
  return model.outputs(inputs);
}

// A mean over nothing would be NaN. The loss is zero instead, but computed from the outputs,
// because with synchronised batch norm every worker has to take part in backward.
torch::Tensor value_of(const Criterion& criterion, const torch::Tensor& output,
                       const torch::Tensor& target, const LossOver& over) {
  return over == mean_over(0) ? (output * 0).sum() : criterion(output, target);
}

}  // namespace

std::string describe(const SupervisedKeys& keys) {
  std::vector<std::string> losses;
  for (const LossTerm& term : loss_terms(keys)) {
    losses.push_back(fmt::format("({})", OptionText()
                                             .with("criterion", term.criterion)
                                             .with("output", term.output)
                                             .with("target", term.target)
                                             .with("weight", term.weight)
                                             .with("name", term.name)
                                             .str()));
  }
  return OptionText()
      .with("input_key", keys.input_key)
      .with("output_key", keys.output_key)
      .with("target_key", keys.target_key)
      .with("loss_key", keys.loss_key)
      .with("input_keys", keys.input_keys)
      .with("output_keys", keys.output_keys)
      .with("losses", losses)
      .str();
}

void check_keys(const SupervisedKeys& keys) {
  const SupervisedKeys defaults;
  check_instead("input_key", keys.input_key, defaults.input_key, !keys.input_keys.empty());
  check_instead("output_key", keys.output_key, defaults.output_key, !keys.output_keys.empty());
  check_key_list("input_keys", keys.input_keys);
  check_key_list("output_keys", keys.output_keys);
  if (keys.losses.empty() && keys.output_keys.size() > 1) {
    throw ConfigError(
        "losses: expected at least one, because with several outputs ({}) it is not known which "
        "one is compared with '{}'; got none",
        join(keys.output_keys, ", "), keys.target_key);
  }
  std::vector<std::string> names;
  for (const LossTerm& term : loss_terms(keys)) {
    if (!std::isfinite(term.weight)) {
      throw ConfigError("losses: weight of '{}': expected a finite number, got {}", term.name,
                        term.weight);
    }
    names.push_back(term.name);
  }
  if (names.size() < 2) return;
  // "loss/std" is the standard deviation of the loss.
  if (std::ranges::find(names, "std") != names.end()) {
    throw ConfigError("losses: name: 'std' is taken, expected another one");
  }
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  if (twice == names.end()) return;
  throw ConfigError("losses: two terms have the name '{}': set their name to different ones",
                    *twice);
}

std::vector<LossTerm> loss_terms(const SupervisedKeys& keys) {
  const std::string& output = keys.output_keys.size() == 1 ? keys.output_keys[0] : keys.output_key;
  std::vector<LossTerm> terms = keys.losses.empty() ? std::vector<LossTerm>(1) : keys.losses;
  for (LossTerm& term : terms) {
    if (term.output.empty()) term.output = output;
    if (term.target.empty()) term.target = keys.target_key;
    if (term.name.empty()) term.name = term.output;
  }
  return terms;
}

std::vector<std::string> loss_metrics(const SupervisedKeys& keys) {
  std::vector<std::string> metrics;
  if (keys.losses.size() < 2) return metrics;
  for (const LossTerm& term : loss_terms(keys)) {
    metrics.push_back(keys.loss_key + "/" + term.name);
  }
  return metrics;
}

bool has_criterion(const RunState& run) {
  return run.criterion || !run.criterions.empty();
}

const Criterion& criterion_of(const RunState& run, const std::string& name) {
  return name.empty() ? run.criterion : run.criterions.at(name);
}

void forward_keys(const Model& model, const SupervisedKeys& keys, const Batch& from, Batch& to) {
  const Outputs outputs = outputs_for(model, keys, from);
  if (outputs.is_named() || !keys.output_keys.empty()) {
    to.update(outputs.to_batch(keys.output_keys));
    return;
  }
  if (outputs.count() != 1) {
    throw ConfigError("model: returned {}: name them with output_keys", outputs.describe());
  }
  to.set(keys.output_key, outputs.tensor());
}

void set_losses(State& state, const SupervisedKeys& keys, const std::vector<LossTerm>& terms) {
  if (!has_criterion(state)) return;
  const double samples = static_cast<double>(state.samples());
  bool is_first = true;
  for (const LossTerm& term : terms) {
    const Criterion& criterion = criterion_of(state, term.criterion);
    if (!criterion) {
      throw ConfigError("losses: '{}': the run has no single criterion: name one of its criterions",
                        term.name);
    }
    const torch::Tensor& output = state.batch[term.output];  // valid until set_loss()
    const torch::Tensor& target = state.batch[term.target];
    const LossOver over = criterion.over(output, target);
    const torch::Tensor value = value_of(criterion, output, target, over);
    const torch::Tensor weighted = term.weight == 1 ? value : value * term.weight;
    if (std::exchange(is_first, false)) {
      state.set_loss(weighted, over);
    } else {
      state.add_loss(weighted, over);
    }
    if (terms.size() < 2) continue;
    // As the loss itself, a sum is shown per sample.
    const bool is_sum = over.kind == LossOver::Kind::kSum;
    state.set_metric(keys.loss_key + "/" + term.name,
                     value.item<double>() / (is_sum ? samples : 1.0),
                     is_sum ? mean_over_samples() : over);
  }
}

}  // namespace lockstep

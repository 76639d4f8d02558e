#include "lockstep/train/side_training.h"

#include <algorithm>
#include <atomic>
#include <string_view>
#include <unordered_set>

#include <ATen/record_function.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

std::string shape_of(const torch::Tensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.sizes(), ", "));
}

// How many gradients backward() added to leaves. It is global because LibTorch's callback is a
// plain function, and atomic because gradients of another device are computed by another thread.
std::atomic<std::int64_t> accumulations = 0;

// It must not ask for the inputs: a debug build would look for them in a member that the LibTorch
// of a distribution, which is a release build, does not have.
std::unique_ptr<at::ObserverContext> note_accumulation(const at::RecordFunction& function) {
  if (std::string_view(function.name()).ends_with("AccumulateGrad")) ++accumulations;
  return nullptr;
}

// Notes that backward() adds gradients to leaves, in calls of this thread.
class AccumulationWatch {
 public:
  AccumulationWatch()
      : before_(accumulations),
        handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(note_accumulation)
                                               .scopes({at::RecordScope::BACKWARD_FUNCTION}))) {}
  ~AccumulationWatch() { at::removeCallback(handle_); }
  AccumulationWatch(const AccumulationWatch&) = delete;
  AccumulationWatch& operator=(const AccumulationWatch&) = delete;

  bool saw_one() const { return accumulations != before_; }

 private:
  std::int64_t before_;
  at::CallbackHandle handle_;
};

// The norms of all gradients, to find the one that something was added to. Version counters do not
// tell: the gradients of a run are views of one buffer, which has one counter.
std::vector<double> gradient_norms(const NamedTensors& parameters) {
  const torch::NoGradGuard no_grad;
  std::vector<double> norms;
  for (const auto& [name, parameter] : parameters) {
    const torch::Tensor& gradient = parameter.grad();
    norms.push_back(gradient.defined() ? gradient.norm().item<double>() : 0.0);
  }
  return norms;
}

// "'0.weight' of shape [5, 3]"
std::string changed_gradient(const NamedTensors& parameters, const std::vector<double>& before) {
  const std::vector<double> after = gradient_norms(parameters);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (after[i] == before[i]) continue;
    return fmt::format("'{}' of shape {}", parameters[i].first, shape_of(parameters[i].second));
  }
  return "a tensor that is no parameter of the run";
}

// Calls function() and throws ConfigError if it called backward(). `place` is the function that the
// user wrote.
void call_without_backward(const char* place, const NamedTensors& parameters,
                           const std::function<void()>& function) {
  const std::vector<double> before = gradient_norms(parameters);
  const AccumulationWatch watch;
  function();
  if (!watch.saw_one()) return;
  throw ConfigError(
      "{} called backward(), which added to the gradient of {}; but the run "
      "does this itself, when the losses of all shards are there: pass the loss to "
      "state.set_loss in handle_batch; give every further loss its own phase (.phases); for "
      "gradients that are a part of the loss use torch::autograd::grad",
      place, changed_gradient(parameters, before));
}

std::vector<std::uint32_t> versions_of(const NamedTensors& parameters) {
  std::vector<std::uint32_t> versions;
  for (const auto& [name, parameter] : parameters) versions.push_back(parameter._version());
  return versions;
}

// The first parameter that was changed since then; null if none was.
const NamedTensors::value_type* first_changed(const NamedTensors& parameters,
                                              const std::vector<std::uint32_t>& before) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].second._version() != before[i]) return &parameters[i];
  }
  return nullptr;
}

// A tensor that gets a gradient from loss.backward().
struct Leaf {
  torch::Tensor tensor;
  std::string used_by;  // the name of autograd's function for the operation that uses it
};

std::vector<Leaf> leaves_of(const torch::Tensor& loss) {
  using torch::autograd::Node;
  std::vector<Leaf> leaves;
  if (loss.grad_fn() == nullptr) return leaves;
  std::unordered_set<const Node*> seen;
  std::vector<Node*> open = {loss.grad_fn().get()};
  while (!open.empty()) {
    Node* const node = open.back();
    open.pop_back();
    for (const auto& edge : node->next_edges()) {
      Node* const next = edge.function.get();
      if (next == nullptr || !seen.insert(next).second) continue;
      if (const auto* const leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(next)) {
        leaves.push_back({leaf->variable, node->name()});
      } else {
        open.push_back(next);
      }
    }
  }
  return leaves;
}

// ", through 'penalty' of the batch": the other tensors of the batch that depend on the leaf, which
// are terms of the loss or what they were computed from.
std::string path_of(const State& state, const torch::Tensor& leaf) {
  std::vector<std::string> keys;
  for (const auto& [key, tensor] : state.batch) {
    if (key == state.loss_key || !tensor.defined()) continue;
    const auto leaves = leaves_of(tensor);
    const bool depends =
        std::ranges::any_of(leaves, [&](const Leaf& item) { return item.tensor.is_same(leaf); });
    if (depends) keys.push_back("'" + key + "'");
  }
  return keys.empty() ? "" : fmt::format(", through {} of the batch", fmt::join(keys, ", "));
}

// While it exists, calls of state.change_model are noted.
class ChangeModelWatch {
 public:
  explicit ChangeModelWatch(State& state) : state_(state), original_(state.change_model) {
    state_.change_model = [this](const std::function<void()>& change) {
      was_called = true;
      original_(change);
    };
  }
  ~ChangeModelWatch() { state_.change_model = std::move(original_); }
  ChangeModelWatch(const ChangeModelWatch&) = delete;
  ChangeModelWatch& operator=(const ChangeModelWatch&) = delete;

  bool was_called = false;

 private:
  State& state_;
  std::function<void(const std::function<void()>& change)> original_;
};

}  // namespace

bool FirstBatches::includes(std::int64_t batch_step) {
  constexpr std::int64_t kBatches = 2;
  if (batch_step != last_) {
    last_ = batch_step;
    ++count_;
  }
  return count_ <= kBatches;
}

bool SideTraining::watches(const State& state) {
  if (phases_.empty()) begin(state);
  Watched& phase = phases_[state.phase];
  if (phase.batches.includes(state.progress.batch_step)) return true;
  phase.others.clear();
  return false;
}

void SideTraining::begin(const State& state) {
  parameters_ = state.model.parameters();
  for (const auto& [name, parameter] : parameters_) own_.insert(parameter.unsafeGetTensorImpl());
  for (const auto& [name, criterion] : state.criterions) {
    for (const auto& parameter : criterion.parameters()) {
      own_.insert(parameter.unsafeGetTensorImpl());
    }
  }
}

void SideTraining::handle(State& state, const std::function<void(State&)>& handle_batch) {
  const auto versions = versions_of(parameters_);
  call_without_backward("handle_batch", parameters_, [&] { handle_batch(state); });
  if (const auto* const changed = first_changed(parameters_, versions)) {
    throw ConfigError(
        "handle_batch changed the parameter '{}' of shape {}, but it is called several times "
        "before an update, once for each shard: leave updates to the optimizers of the run "
        "(.optimizers, .phases), and make other changes in on_step of a callback, inside of "
        "state.change_model()",
        changed->first, shape_of(changed->second));
  }
  check_leaves(state);
}

void SideTraining::check_leaves(const State& state) {
  if (!state.batch.contains(state.loss_key)) return;
  Watched& phase = phases_[state.phase];
  for (const auto& [leaf, used_by] : leaves_of(state.batch[state.loss_key])) {
    const c10::TensorImpl* const key = leaf.unsafeGetTensorImpl();
    if (own_.contains(key)) continue;
    if (phase.batches.is_first()) {
      phase.others.emplace(key, leaf);
    } else if (phase.others.contains(key)) {
      throw ConfigError(
          "the loss depends on a tensor of shape {} that requires a gradient and is in no "
          "network of the run (used by {}{}), so it is not trained, saved, or kept equal on all "
          "workers: pass its network in .models, with an optimizer in .optimizers if it is to be "
          "trained; or call requires_grad_(false) on it",
          shape_of(leaf), used_by, path_of(state, leaf));
    }
  }
}

bool HandlerWatch::watches(const State& state) {
  if (!state.is_train) return false;
  for (auto& [phase, batches] : phases_) {
    if (phase == state.phase) return batches.includes(state.progress.batch_step);
  }
  phases_.emplace_back(state.phase, FirstBatches());
  return phases_.back().second.includes(state.progress.batch_step);
}

void HandlerWatch::call_watched(State& state, const std::function<void()>& function) const {
  const NamedTensors parameters = state.model.parameters();
  const auto versions = versions_of(parameters);
  ChangeModelWatch changes(state);
  call_without_backward(handler_, parameters, function);
  const auto* const changed = first_changed(parameters, versions);
  if (changed == nullptr || changes.was_called) return;
  throw ConfigError(
      "{} changed the parameter '{}' of shape {} outside of state.change_model(): leave updates to "
      "the optimizers of the run (.optimizers, .phases), and make other changes in on_step, inside "
      "of state.change_model()",
      handler_, changed->first, shape_of(changed->second));
}

}  // namespace lockstep

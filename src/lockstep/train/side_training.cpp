#include "lockstep/train/side_training.h"

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

// It is global because LibTorch's callback is a plain function. It is atomic because gradients of
// another device are computed by another thread.
std::atomic<std::int64_t> accumulations{0};

std::unique_ptr<at::ObserverContext> count_accumulation(const at::RecordFunction& function) {
  if (std::string_view(function.name()).ends_with("AccumulateGrad")) ++accumulations;
  return nullptr;
}

// Counts the gradients that backward() adds to leaves, in calls of this thread.
class AccumulationCounter {
 public:
  AccumulationCounter()
      : before_(accumulations),
        handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(count_accumulation)
                                               .scopes({at::RecordScope::BACKWARD_FUNCTION}))) {}
  ~AccumulationCounter() { at::removeCallback(handle_); }
  AccumulationCounter(const AccumulationCounter&) = delete;
  AccumulationCounter& operator=(const AccumulationCounter&) = delete;

  std::int64_t count() const { return accumulations - before_; }

 private:
  std::int64_t before_;
  at::CallbackHandle handle_;
};

// The leaves that get a gradient from loss.backward().
std::vector<torch::Tensor> leaves_of(const torch::Tensor& loss) {
  using torch::autograd::Node;
  std::vector<torch::Tensor> leaves;
  if (loss.grad_fn() == nullptr) return leaves;
  std::unordered_set<const Node*> seen;
  std::vector<Node*> open = {loss.grad_fn().get()};
  while (!open.empty()) {
    Node* const node = open.back();
    open.pop_back();
    if (!seen.insert(node).second) continue;
    if (const auto* const leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node)) {
      leaves.push_back(leaf->variable);
    }
    for (const auto& edge : node->next_edges()) {
      if (edge.function != nullptr) open.push_back(edge.function.get());
    }
  }
  return leaves;
}

}  // namespace

bool SideTraining::watches(const State& state) {
  constexpr std::int64_t kBatches = 2;
  if (!first_batch_) begin(state);
  if (state.progress.batch_step < *first_batch_ + kBatches) return true;
  others_.clear();
  return false;
}

void SideTraining::begin(const State& state) {
  first_batch_ = state.progress.batch_step;
  parameters_ = state.model.parameters();
  for (const auto& [name, parameter] : parameters_) own_.insert(parameter.unsafeGetTensorImpl());
  for (const auto& [name, criterion] : state.criterions) {
    for (const auto& parameter : criterion.parameters()) {
      own_.insert(parameter.unsafeGetTensorImpl());
    }
  }
}

void SideTraining::handle(State& state, const std::function<void(State&)>& handle_batch) {
  std::vector<std::uint32_t> versions;
  for (const auto& [name, parameter] : parameters_) versions.push_back(parameter._version());
  {
    const AccumulationCounter counter;
    handle_batch(state);
    if (counter.count() > 0) {
      throw ConfigError(
          "handle_batch called backward(), but the run does this itself, when the losses of all "
          "shards are there: pass the loss to state.set_loss; give every further loss its own "
          "phase (.phases); for gradients that are a part of the loss use torch::autograd::grad");
    }
  }
  check_versions(versions);
  check_leaves(state);
}

void SideTraining::check_versions(const std::vector<std::uint32_t>& before) const {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, parameter] = parameters_[i];
    if (parameter._version() == before[i]) continue;
    throw ConfigError(
        "handle_batch changed the parameter '{}', but it is called several times before an update, "
        "once for each shard: leave updates to the optimizers of the run (.optimizers, .phases), "
        "and make other changes in on_step of a callback, inside of state.change_model()",
        name);
  }
}

void SideTraining::check_leaves(const State& state) {
  if (!state.batch.contains(state.loss_key)) return;
  const bool is_first = state.progress.batch_step == *first_batch_;
  for (const torch::Tensor& leaf : leaves_of(state.batch[state.loss_key])) {
    const c10::TensorImpl* const key = leaf.unsafeGetTensorImpl();
    if (own_.contains(key)) continue;
    if (is_first) {
      others_.emplace(key, leaf);
    } else if (others_.contains(key)) {
      throw ConfigError(
          "the loss depends on a tensor of shape [{}] that requires a gradient and is in no "
          "network of the run, so it is not trained, saved, or kept equal on all workers: "
          "pass its network in .models, with an optimizer in .optimizers if it is to be trained; "
          "or call requires_grad_(false) on it",
          fmt::join(leaf.sizes(), ", "));
    }
  }
}

}  // namespace lockstep

#include "lockstep/compute/planned_sequential.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <typeinfo>
#include <utility>

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/utils.h>

#include "lockstep/compute/autograd_node.h"
#include "lockstep/compute/switches.h"

namespace lockstep::compute {
namespace {

namespace nn = torch::nn;
using torch::Tensor;
using torch::autograd::variable_list;

using Workspace = std::vector<LayerPass>;  // one per layer

// Whether backward() accumulates every gradient, so that no caller requested their return.
bool is_plain_backward() {
  const auto* const asked = torch::autograd::get_current_graph_task_exec_info();
  return asked == nullptr || asked->empty();
}

// Whether a DirectGradients exists in this thread. It is global because the user's forward() is
// between the runner that makes it and the layers that read it.
thread_local bool direct_gradients = false;

// With autocast, operations use other types than those of their inputs.
bool is_autocast() {
  return !c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::AutocastCPU);
}

bool has_hooks(const Tensor& parameter) {
  return !torch::autograd::impl::hooks(parameter).empty();
}

}  // namespace

DirectGradients::DirectGradients(bool direct)
    : previous_(std::exchange(direct_gradients, direct)) {}

DirectGradients::~DirectGradients() {
  direct_gradients = previous_;
}

class PlannedSequential::ExecutionPlan {
 public:
  explicit ExecutionPlan(std::vector<std::shared_ptr<nn::Module>> modules)
      : modules_(std::move(modules)), layers_(plan_layers(modules_)) {}

  bool is_of(const std::vector<std::shared_ptr<nn::Module>>& modules) const {
    return modules_ == modules;
  }

  // Whether no input of that shape was refused before.
  bool may_take(const Tensor& input) const {
    const std::lock_guard lock(mutex_);
    return !layers_.empty() && (!refused_ || input.sizes() != *refused_);
  }

  // Each parameter once, even if several layers share it.
  std::vector<Tensor> parameters() const {
    std::vector<Tensor> all;
    for (const auto& layer : layers_) {
      for (const Tensor& parameter : layer->parameters()) {
        const auto same = [&](const Tensor& other) { return other.is_same(parameter); };
        if (std::ranges::none_of(all, same)) all.push_back(parameter);
      }
    }
    return all;
  }

  // The edges live as long as the plan. Otherwise autograd would make new ones for every step.
  torch::autograd::edge_list edges_to(const std::vector<Tensor>& parameters) {
    const std::lock_guard lock(mutex_);
    edges_ = torch::autograd::collect_next_edges(parameters);
    return edges_;
  }

  // Memory that no other pass uses.
  Workspace take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return Workspace(layers_.size());
    Workspace workspace = std::move(free_.back());
    free_.pop_back();
    return workspace;
  }
  void give_back(Workspace&& workspace) {
    constexpr std::size_t kMostKept = 2;
    // The batch's memory and views of it are released, because they belong to the caller.
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      workspace[i].input.reset();
      if (!layers_[i]->is_view()) continue;
      workspace[i].output.reset();
      workspace[i].input_grad.reset();
    }
    const std::lock_guard lock(mutex_);
    if (free_.size() < kMostKept) free_.push_back(std::move(workspace));
  }

  // Keeps everything that backward() needs in the workspace. Nothing if a layer cannot take its
  // input.
  std::optional<Tensor> forward(const Tensor& input, Workspace& workspace) {
    // The caller keeps the last output, so it needs new memory.
    for (std::size_t i = layers_.size(); i-- > 0;) {
      workspace[i].output.reset();
      if (!layers_[i]->is_view()) break;
    }
    Tensor value = input;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      if (!layers_[i]->accepts(value)) return refuse(input);
      workspace[i].input = value;
      layers_[i]->forward(workspace[i], /*for_backward=*/true);
      value = workspace[i].output;
    }
    return value;
  }

  // Computes only the output.
  std::optional<Tensor> evaluate(const Tensor& input) {
    Tensor value = input;
    for (const auto& layer : layers_) {
      if (!layer->accepts(value)) return refuse(input);
      LayerPass pass;
      pass.input = value;
      layer->forward(pass, /*for_backward=*/false);
      value = pass.output;
    }
    return value;
  }

  void backward(const Tensor& grad, Workspace& workspace) const {
    const std::lock_guard lock(backward_mutex_);
    std::size_t first = 0;  // no layer before it is trained
    while (first < layers_.size() && !trains(*layers_[first])) ++first;
    Tensor value = grad.contiguous();
    for (std::size_t i = layers_.size(); i-- > first;) {
      layers_[i]->backward(workspace[i], {.of_output = value, .of_input = i > first});
      value = workspace[i].input_grad;
    }
  }

  // Whether backward() reads the output of the whole Sequential.
  bool needs_output() const {
    for (std::size_t i = layers_.size(); i-- > 0;) {
      if (!layers_[i]->is_view()) return layers_[i]->needs_output();
    }
    return false;
  }

 private:
  static bool trains(const PlannedLayer& layer) {
    return std::ranges::any_of(layer.parameters(), &Tensor::requires_grad);
  }

  std::nullopt_t refuse(const Tensor& input) {
    const std::lock_guard lock(mutex_);
    refused_ = input.sizes().vec();
    return std::nullopt;
  }

  std::vector<std::shared_ptr<nn::Module>> modules_;
  std::vector<std::unique_ptr<PlannedLayer>> layers_;
  mutable std::mutex backward_mutex_;  // gradients are added by one thread at a time
  mutable std::mutex mutex_;           // protects the following members
  std::optional<std::vector<std::int64_t>> refused_;
  torch::autograd::edge_list edges_;
  std::vector<Workspace> free_;
};

struct PlannedSequential::Backward : torch::autograd::Node {
  Backward(std::shared_ptr<ExecutionPlan> plan_of, std::shared_ptr<nn::SequentialImpl> module_of,
           Workspace&& memory, std::vector<Tensor> trained_of)
      : plan(std::move(plan_of)),
        module(std::move(module_of)),
        workspace(std::move(memory)),
        trained(std::move(trained_of)) {
    used = plan->parameters();
    used.push_back(workspace->front().input);
    if (plan->needs_output()) used.push_back(workspace->back().output);
    for (const Tensor& tensor : used) versions.push_back(tensor._version());
  }
  ~Backward() override { release_variables(); }

  variable_list apply(variable_list&& grads) override {
    variable_list none(num_outputs());
    if (!grads[0].defined()) return none;
    check_unchanged();
    const bool direct = num_outputs() == 0;
    if (!direct && (torch::GradMode::is_enabled() || !is_plain_backward())) {
      return recorded_gradients(grads[0]);
    }
    const torch::NoGradGuard no_grad;
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    plan->backward(grads[0], *workspace);
    return none;  // they were added to the parameters' gradients
  }

  void release_variables() override {
    if (workspace) plan->give_back(std::move(*workspace));
    workspace.reset();
    used.clear();
  }

  std::string name() const override { return "LockstepSequentialBackward"; }

  // Uses autograd itself, because the caller wants gradients returned, or gradients of gradients.
  variable_list recorded_gradients(const Tensor& grad) const {
    const bool again = torch::GradMode::is_enabled();
    const torch::AutoGradMode recording(true);
    const Tensor output = module->forward(workspace->front().input);
    return torch::autograd::grad({output}, trained, {grad}, /*retain_graph=*/again,
                                 /*create_graph=*/again, /*allow_unused=*/true);
  }

  void check_unchanged() const {
    TORCH_CHECK(workspace.has_value(),
                "Trying to backward through the graph a second time (or directly access saved "
                "tensors after they have already been freed). Specify retain_graph=True if you "
                "need to backward through the graph a second time.");
    for (std::size_t i = 0; i < used.size(); ++i) {
      TORCH_CHECK(used[i]._version() == versions[i],
                  "one of the variables needed for gradient computation has been modified by an "
                  "inplace operation: an input, output or parameter of a Sequential");
    }
  }

  std::shared_ptr<ExecutionPlan> plan;
  std::shared_ptr<nn::SequentialImpl> module;
  std::optional<Workspace> workspace;
  std::vector<Tensor> trained;
  std::vector<Tensor> used;  // must not change before backward()
  std::vector<std::uint32_t> versions;
};

PlannedSequential::PlannedSequential(std::shared_ptr<nn::SequentialImpl> module)
    : module_(std::move(module)) {}

PlannedSequential::~PlannedSequential() = default;

std::shared_ptr<PlannedSequential::ExecutionPlan> PlannedSequential::plan() {
  std::vector<std::shared_ptr<nn::Module>> modules;
  for (const auto& child : *module_) modules.push_back(child.ptr());
  const std::lock_guard lock(mutex_);
  if (plan_ == nullptr || !plan_->is_of(modules)) {
    plan_ = std::make_shared<ExecutionPlan>(std::move(modules));
  }
  return plan_;
}

Tensor PlannedSequential::forward(const Tensor& input) {
  const nn::SequentialImpl& object = *module_;
  if (!is_enabled(Speedup::kPlan) || input.requires_grad() || !input.device().is_cpu() ||
      !input.has_storage() || torch::InferenceMode::is_enabled() || is_autocast() ||
      typeid(object) != typeid(nn::SequentialImpl)) {
    return module_->forward(input);
  }
  const std::shared_ptr<ExecutionPlan> plan = this->plan();
  if (!plan->may_take(input)) return module_->forward(input);
  std::vector<Tensor> trained;
  if (torch::GradMode::is_enabled()) {
    trained = plan->parameters();
    std::erase_if(trained, [](const Tensor& parameter) { return !parameter.requires_grad(); });
    if (std::ranges::any_of(trained, has_hooks)) return module_->forward(input);
  }
  Workspace workspace;
  std::optional<Tensor> output;
  {
    const torch::NoGradGuard no_grad;
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    if (trained.empty()) {
      output = plan->evaluate(input);
    } else {
      workspace = plan->take();
      output = plan->forward(input, workspace);
    }
  }
  if (!output) return module_->forward(input);
  if (trained.empty()) return *output;
  // A second handle of the same memory. The node keeps the output; with one handle it would keep
  // itself alive.
  Tensor result = output->detach();
  torch::autograd::edge_list edges;
  if (!direct_gradients) edges = plan->edges_to(trained);
  const auto node = make_node<Backward>(plan, module_, std::move(workspace), std::move(trained));
  node->set_next_edges(std::move(edges));
  torch::autograd::set_history(result, node);
  return result;
}

}  // namespace lockstep::compute

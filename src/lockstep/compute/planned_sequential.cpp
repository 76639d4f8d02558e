#include "lockstep/compute/planned_sequential.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <typeinfo>
#include <utility>

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/compute/switches.h"

namespace lockstep::compute {
namespace {

namespace nn = torch::nn;
using torch::Tensor;
using torch::autograd::variable_list;

using Workspace = std::vector<LayerPass>;  // one a layer

// Whether every gradient is to be accumulated, and none to be returned to somebody who asked.
bool is_plain_backward() {
  const auto* const asked = torch::autograd::get_current_graph_task_exec_info();
  return asked == nullptr || asked->empty();
}

thread_local bool direct_gradients = false;

bool has_hooks(const Tensor& parameter) {
  return !torch::autograd::impl::hooks(parameter).empty();
}

}  // namespace

DirectGradients::DirectGradients(bool direct)
    : previous_(std::exchange(direct_gradients, direct)) {}

DirectGradients::~DirectGradients() {
  direct_gradients = previous_;
}

class PlannedSequential::Plan {
 public:
  explicit Plan(std::vector<std::shared_ptr<nn::Module>> modules)
      : modules_(std::move(modules)), layers_(plan_layers(modules_)) {}

  bool is_of(const std::vector<std::shared_ptr<nn::Module>>& modules) const {
    return modules_ == modules;
  }
  bool is_possible() const { return !layers_.empty(); }

  // Those that autograd is to know of.
  std::vector<Tensor> trainable() const {
    std::vector<Tensor> parameters;
    for (const auto& layer : layers_) {
      for (const Tensor& parameter : layer->parameters()) {
        if (parameter.requires_grad()) parameters.push_back(parameter);
      }
    }
    return parameters;
  }

  // They live as long as the plan: autograd would make new ones for every step.
  const torch::autograd::edge_list& edges_to(const std::vector<Tensor>& parameters) {
    edges_ = torch::autograd::collect_next_edges(parameters);
    return edges_;
  }

  // Memory that no other pass is using.
  Workspace take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return Workspace(layers_.size());
    Workspace workspace = std::move(free_.back());
    free_.pop_back();
    return workspace;
  }
  void give_back(Workspace&& workspace) {
    // What is not ours is let go: a batch's memory is used again, too.
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      workspace[i].input.reset();
      if (!layers_[i]->is_view()) continue;
      workspace[i].output.reset();
      workspace[i].input_grad.reset();
    }
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(workspace));
  }

  // Nothing where a layer cannot take what it gets.
  std::optional<Tensor> forward(const Tensor& input, Workspace& workspace,
                                bool for_backward) const {
    Tensor value = input;
    // The last output is the caller's to keep.
    for (std::size_t i = layers_.size(); i-- > 0;) {
      workspace[i].output.reset();
      if (!layers_[i]->is_view()) break;
    }
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      if (!layers_[i]->accepts(value)) return std::nullopt;
      workspace[i].input = value;
      layers_[i]->forward(workspace[i], for_backward);
      value = workspace[i].output;
    }
    return value;
  }

  void backward(const Tensor& grad, Workspace& workspace) const {
    std::size_t first = 0;  // below it, nothing is trained
    while (first < layers_.size() && !trains(*layers_[first])) ++first;
    Tensor value = grad.contiguous();
    for (std::size_t i = layers_.size(); i-- > first;) {
      layers_[i]->backward(workspace[i], {.of_output = value, .of_input = i > first});
      value = workspace[i].input_grad;
    }
  }

 private:
  static bool trains(const PlannedLayer& layer) {
    for (const Tensor& parameter : layer.parameters()) {
      if (parameter.requires_grad()) return true;
    }
    return false;
  }

  std::vector<std::shared_ptr<nn::Module>> modules_;
  std::vector<std::unique_ptr<PlannedLayer>> layers_;
  torch::autograd::edge_list edges_;
  std::mutex mutex_;
  std::vector<Workspace> free_;
};

struct PlannedSequential::Backward : torch::autograd::Node {
  Backward(std::shared_ptr<Plan> plan_of, std::shared_ptr<nn::SequentialImpl> module_of,
           Workspace&& memory, const std::vector<Tensor>& trained)
      : plan(std::move(plan_of)),
        module(std::move(module_of)),
        workspace(std::move(memory)),
        parameters(trained) {
    for (const Tensor& parameter : parameters) versions.push_back(parameter._version());
    output_version = workspace->back().output._version();
    input_version = workspace->front().input._version();
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
    return none;  // they are where they belong
  }

  void release_variables() override {
    if (workspace) plan->give_back(std::move(*workspace));
    workspace.reset();
  }

  std::string name() const override { return "LockstepSequentialBackward"; }

  // By autograd itself: somebody wants gradients returned, or gradients of gradients.
  variable_list recorded_gradients(const Tensor& grad) const {
    const bool again = torch::GradMode::is_enabled();
    const torch::AutoGradMode recording(true);
    const Tensor output = module->forward(workspace->front().input);
    return torch::autograd::grad({output}, parameters, {grad}, /*retain_graph=*/again,
                                 /*create_graph=*/again, /*allow_unused=*/true);
  }

  void check_unchanged() const {
    TORCH_CHECK(workspace.has_value(),
                "Trying to backward through the graph a second time (or directly access saved "
                "tensors after they have already been freed). Specify retain_graph=True if you "
                "need to backward through the graph a second time.");
    bool changed = workspace->back().output._version() != output_version ||
                   workspace->front().input._version() != input_version;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      changed = changed || parameters[i]._version() != versions[i];
    }
    TORCH_CHECK(!changed,
                "one of the variables needed for gradient computation has been modified by an "
                "inplace operation: an input, output or parameter of a Sequential");
  }

  std::shared_ptr<Plan> plan;
  std::shared_ptr<nn::SequentialImpl> module;
  std::optional<Workspace> workspace;
  std::vector<Tensor> parameters;
  std::vector<std::uint32_t> versions;
  std::uint32_t output_version = 0;
  std::uint32_t input_version = 0;
};

PlannedSequential::PlannedSequential(std::shared_ptr<nn::SequentialImpl> module)
    : module_(std::move(module)) {}

PlannedSequential::~PlannedSequential() = default;

Tensor PlannedSequential::forward(const Tensor& input) {
  const nn::SequentialImpl& object = *module_;
  if (!is_enabled(Speedup::kPlan) || input.requires_grad() || !input.device().is_cpu() ||
      !input.has_storage() || torch::InferenceMode::is_enabled() ||
      typeid(object) != typeid(nn::SequentialImpl)) {
    return module_->forward(input);
  }
  std::vector<std::shared_ptr<nn::Module>> modules;
  for (const auto& child : *module_) modules.push_back(child.ptr());
  if (plan_ == nullptr || !plan_->is_of(modules))
    plan_ = std::make_shared<Plan>(std::move(modules));
  if (!plan_->is_possible()) return module_->forward(input);

  std::vector<Tensor> trained;
  if (torch::GradMode::is_enabled()) trained = plan_->trainable();
  if (std::ranges::any_of(trained, has_hooks)) return module_->forward(input);
  Workspace workspace = plan_->take();
  std::optional<Tensor> output;
  {
    const torch::NoGradGuard no_grad;
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    output = plan_->forward(input, workspace, !trained.empty());
  }
  if (!output) return module_->forward(input);
  if (trained.empty()) {
    plan_->give_back(std::move(workspace));
    return *output;
  }
  // Another handle of the same memory: the node keeps the output, and must not keep itself.
  Tensor result = output->detach();
  const auto node = std::shared_ptr<Backward>(
      new Backward(plan_, module_, std::move(workspace), trained), torch::autograd::deleteNode);
  if (!direct_gradients) {
    node->set_next_edges(torch::autograd::edge_list(plan_->edges_to(trained)));
  }
  torch::autograd::set_history(result, node);
  return result;
}

}  // namespace lockstep::compute

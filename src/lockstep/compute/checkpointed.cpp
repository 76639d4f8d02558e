#include "lockstep/compute/checkpointed.h"

#include <algorithm>
#include <set>

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/custom_class.h>
#include <torch/version.h>

#include "lockstep/base/error.h"
#include "lockstep/compute/thread_state.h"

namespace lockstep {
namespace compute {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;

bool requires_gradient(const Tensor& tensor) {
  return tensor.requires_grad();
}

// The states of the generators from which layers draw.
class GeneratorStates {
 public:
  // Those of the CPU and of the devices of the tensors.
  static GeneratorStates of(const TensorList& inputs, const TensorList& parameters) {
    std::set<std::pair<c10::DeviceType, c10::DeviceIndex>> devices = {{torch::kCPU, -1}};
    for (const TensorList* const tensors : {&inputs, &parameters}) {
      for (const Tensor& tensor : *tensors) {
        if (tensor.device().is_cuda()) devices.emplace(torch::kCUDA, tensor.device().index());
      }
    }
    GeneratorStates all;
    for (const auto& [type, index] : devices) {
      all.generators_.push_back(at::globalContext().defaultGenerator(c10::Device(type, index)));
    }
    all.read();
    return all;
  }

  GeneratorStates now() const {
    GeneratorStates all;
    all.generators_ = generators_;
    all.read();
    return all;
  }

  void restore() {
    for (std::size_t i = 0; i < generators_.size(); ++i) {
      const std::lock_guard lock(generators_[i].mutex());
      generators_[i].set_state(states_[i]);
    }
  }

 private:
  void read() {
    for (at::Generator& generator : generators_) {
      const std::lock_guard lock(generator.mutex());
      states_.push_back(generator.get_state());
    }
  }

  std::vector<at::Generator> generators_;
  TensorList states_;
};

// Whether operations choose their own precision, and which one.
struct AutocastState {
  bool on_cpu = false;
  bool on_gpu = false;
  torch::ScalarType cpu_type = torch::kBFloat16;
  torch::ScalarType gpu_type = torch::kFloat16;

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
  static AutocastState now() {
    return {.on_cpu = at::autocast::is_autocast_enabled(torch::kCPU),
            .on_gpu = at::autocast::is_autocast_enabled(torch::kCUDA),
            .cpu_type = at::autocast::get_autocast_dtype(torch::kCPU),
            .gpu_type = at::autocast::get_autocast_dtype(torch::kCUDA)};
  }
  void restore() const {
    at::autocast::set_autocast_enabled(torch::kCPU, on_cpu);
    at::autocast::set_autocast_enabled(torch::kCUDA, on_gpu);
    at::autocast::set_autocast_dtype(torch::kCPU, cpu_type);
    at::autocast::set_autocast_dtype(torch::kCUDA, gpu_type);
  }
#else
  static AutocastState now() {
    return {.on_cpu = at::autocast::is_cpu_enabled(),
            .on_gpu = at::autocast::is_enabled(),
            .cpu_type = at::autocast::get_autocast_cpu_dtype(),
            .gpu_type = at::autocast::get_autocast_gpu_dtype()};
  }
  void restore() const {
    at::autocast::set_cpu_enabled(on_cpu);
    at::autocast::set_enabled(on_gpu);
    at::autocast::set_autocast_cpu_dtype(cpu_type);
    at::autocast::set_autocast_gpu_dtype(gpu_type);
  }
#endif
};

// Calls a function when it is destroyed.
class Afterwards {
 public:
  explicit Afterwards(std::function<void()> call) : call_(std::move(call)) {}
  ~Afterwards() { call_(); }
  Afterwards(const Afterwards&) = delete;
  Afterwards& operator=(const Afterwards&) = delete;

 private:
  std::function<void()> call_;
};

// Below autograd: a layer's saved tensors may refer to the buffer, and must not see a new version.
void write_values(const Tensor& buffer, const Tensor& values) {
  const torch::NoGradGuard no_grad;
  buffer.variable_data().copy_(values);
}

// Autograd's graph of the segment begins at these.
TensorList detached(const TensorList& inputs, const std::vector<bool>& requires_grad) {
  TensorList own;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    own.push_back(inputs[i].detach());
    if (requires_grad[i]) own.back().requires_grad_();
  }
  return own;
}

// One call of a checkpointed module: what backward() needs to repeat it.
class Segment : public torch::CustomClassHolder {
 public:
  Segment(const torch::nn::Module& module, const TensorList& inputs, SegmentFunction run)
      : run_(std::move(run)) {
    for (const auto& item : module.named_parameters()) {
      if (!item.value().requires_grad()) continue;
      if (!torch::autograd::impl::hooks(item.value()).empty()) {
        throw ConfigError(
            "checkpointed: parameter '{}' of {} has a hook (register_hook), which backward() would "
            "call twice; expected none: change the gradient in clip_grad, or do not checkpoint "
            "this module",
            item.key(), module.name());
      }
      parameters_.push_back(item.value());
      versions_.push_back(item.value()._version());
    }
    for (const Tensor& buffer : module.buffers()) {
      buffers_.push_back({.buffer = buffer, .before = buffer.detach().clone()});
    }
    for (const Tensor& input : inputs) input_requires_grad_.push_back(input.requires_grad());
    random_ = GeneratorStates::of(inputs, parameters_);
    name_ = module.name();
  }

  const TensorList& parameters() const { return parameters_; }

  // The graph of this call is dropped. It is recorded nevertheless, because layers may compute
  // other bits if it is not.
  TensorList forward(const TensorList& inputs) {
    std::vector<std::uint32_t> versions;
    for (const Tensor& input : inputs) versions.push_back(input._version());
    TensorList outputs;
    {
      const torch::AutoGradMode on(true);
      outputs = run_(detached(inputs, input_requires_grad_));
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i]._version() == versions[i]) continue;
      throw ConfigError(
          "checkpointed: {} changed its input {} in place, so it cannot be computed again; set "
          "inplace(false) in its first layer",
          name_, i);
    }
    // A forward pass changes few buffers. Only these have to be restored. On a device all are: the
    // host would have to wait for the comparison.
    std::erase_if(buffers_, [](const ChangedBuffer& item) {
      return item.buffer.device().is_cpu() && item.buffer.detach().equal(item.before);
    });
    output_requires_grad_.clear();
    for (Tensor& output : outputs) {
      output_requires_grad_.push_back(output.requires_grad());
      const bool is_input = std::ranges::any_of(
          inputs, [&](const Tensor& input) { return output.is_alias_of(input); });
      output = output.variable_data();
      // Later layers may change the output in place, and the input is needed again.
      if (is_input) output = output.clone();
    }
    return outputs;
  }

  bool output_requires_grad(std::size_t index) const { return output_requires_grad_[index]; }

  // Of the inputs, then of the parameters. Undefined where none is needed.
  TensorList backward(const TensorList& inputs, const TensorList& output_grads) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (parameters_[i]._version() == versions_[i]) continue;
      throw ConfigError(
          "checkpointed: a parameter of {} was changed between forward and backward(), so its "
          "activations cannot be computed again; call backward() before the optimizer's step",
          name_);
    }
    const TensorList own = detached(inputs, input_requires_grad_);
    const TensorList outputs = run_again(own);
    if (outputs.size() != output_grads.size()) {
      throw ConfigError(
          "checkpointed: {} returned {} tensors in forward and {} when it was computed again; it "
          "must return the same ones for the same inputs",
          name_, output_grads.size(), outputs.size());
    }
    TensorList roots, root_grads;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].requires_grad() || !output_grads[i].defined()) continue;
      roots.push_back(outputs[i]);
      root_grads.push_back(output_grads[i]);
    }
    TensorList wanted;
    std::ranges::copy_if(own, std::back_inserter(wanted), requires_gradient);
    wanted.insert(wanted.end(), parameters_.begin(), parameters_.end());
    TensorList found(wanted.size());
    if (!roots.empty()) {
      found = torch::autograd::grad(roots, wanted, root_grads, /*retain_graph=*/false,
                                    /*create_graph=*/false, /*allow_unused=*/true);
    }
    TensorList grads;
    auto next = found.begin();
    for (const Tensor& input : own) grads.push_back(input.requires_grad() ? *next++ : Tensor());
    grads.insert(grads.end(), next, found.end());
    return grads;
  }

 private:
  struct ChangedBuffer {
    Tensor buffer;
    Tensor before;  // its values before forward()
  };

  // Runs the module as forward() did: with its random numbers, its buffers and its precision. They
  // are then what they were before this call.
  TensorList run_again(const TensorList& own) {
    GeneratorStates random = random_.now();
    const AutocastState autocast = AutocastState::now();
    TensorList buffers;
    for (const auto& [buffer, before] : buffers_) buffers.push_back(buffer.detach().clone());
    const Afterwards restore([&] {
      random.restore();
      autocast.restore();
      // Copies of weights that autocast made here belong to a graph that is freed.
      if (autocast_.on_cpu || autocast_.on_gpu) at::autocast::clear_cache();
      for (std::size_t i = 0; i < buffers.size(); ++i) write_values(buffers_[i].buffer, buffers[i]);
    });
    random_.restore();
    autocast_.restore();
    if (autocast_.on_cpu || autocast_.on_gpu) at::autocast::clear_cache();
    for (const auto& [buffer, before] : buffers_) write_values(buffer, before);
    std::vector<std::shared_ptr<void>> states;
    for (const SetThreadState& set : thread_states_) states.push_back(set());
    const torch::AutoGradMode on(true);
    return run_(own);
  }

  SegmentFunction run_;
  std::string name_;
  TensorList parameters_;  // that require a gradient
  std::vector<std::uint32_t> versions_;
  std::vector<ChangedBuffer> buffers_;
  std::vector<bool> input_requires_grad_;
  std::vector<bool> output_requires_grad_;
  GeneratorStates random_;
  AutocastState autocast_ = AutocastState::now();
  std::vector<SetThreadState> thread_states_ = captured_thread_state();
};

// The parameters are inputs of this function, so that autograd adds their gradients as it always
// does: also if no other input requires one, and with the hooks of those who wait for them.
class CheckpointFunction : public torch::autograd::Function<CheckpointFunction> {
 public:
  static torch::autograd::variable_list forward(AutogradContext* context,
                                                const c10::intrusive_ptr<Segment>& segment,
                                                at::TensorList variables) {
    const auto inputs =
        static_cast<std::ptrdiff_t>(variables.size() - segment->parameters().size());
    const TensorList own(variables.begin(), variables.begin() + inputs);
    TensorList outputs = segment->forward(own);
    TensorList constants;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (!segment->output_requires_grad(i)) constants.push_back(outputs[i]);
    }
    context->mark_non_differentiable(constants);
    context->set_materialize_grads(false);
    context->save_for_backward(own);
    context->saved_data["segment"] = c10::IValue::make_capsule(segment);
    return outputs;
  }

  static torch::autograd::variable_list backward(AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    if (torch::GradMode::is_enabled()) {
      throw ConfigError(
          "checkpointed: backward() with create_graph: expected false; a module whose gradient is "
          "differentiated again cannot be checkpointed");
    }
    const auto held = context->saved_data["segment"].toCapsule();
    auto& segment = static_cast<Segment&>(*held);
    TensorList all = {Tensor()};  // the segment has no gradient
    for (Tensor& grad : segment.backward(context->get_saved_variables(), grads)) {
      all.push_back(std::move(grad));
    }
    return all;
  }
};

}  // namespace

bool records_gradients(const torch::nn::Module& module, const TensorList& inputs) {
  if (!torch::GradMode::is_enabled()) return false;
  return std::ranges::any_of(inputs, requires_gradient) ||
         std::ranges::any_of(module.parameters(), requires_gradient);
}

TensorList run_checkpointed(const torch::nn::Module& module, const TensorList& inputs,
                            SegmentFunction run) {
  const auto segment = c10::make_intrusive<Segment>(module, inputs, std::move(run));
  TensorList variables = inputs;
  variables.insert(variables.end(), segment->parameters().begin(), segment->parameters().end());
  // LibTorch takes the tensors of a TensorList for inputs, but not those of a vector.
  return CheckpointFunction::apply(segment, at::TensorList(variables));
}

SameNames::SameNames(std::shared_ptr<torch::nn::Module> original)
    : torch::nn::Module("Checkpointed"), original_(std::move(original)) {
  if (original_ == nullptr) throw ConfigError("checkpointed: expected a module, got none");
  for (const auto& item : original_->named_parameters(/*recurse=*/false)) {
    register_parameter(item.key(), item.value(), item.value().requires_grad());
  }
  for (const auto& item : original_->named_buffers(/*recurse=*/false)) {
    register_buffer(item.key(), item.value());
  }
  for (const auto& item : original_->named_children()) {
    register_module(item.key(), item.value());
  }
}

void SameNames::train(bool on) {
  torch::nn::Module::train(on);
  original_->train(on);
}

void SameNames::pretty_print(std::ostream& stream) const {
  stream << "Checkpointed(";
  original_->pretty_print(stream);
  stream << ")";
}

}  // namespace compute

torch::Tensor CheckpointedImpl<torch::nn::SequentialImpl, void>::forward(
    const torch::Tensor& input) {
  return compute::checkpointed_call<torch::Tensor>(
      module_, [module = module_](const torch::Tensor& own) { return module->forward(own); },
      std::tuple(input));
}

std::shared_ptr<torch::nn::Module> CheckpointedImpl<torch::nn::SequentialImpl, void>::clone(
    const torch::optional<torch::Device>& device) const {
  return std::make_shared<CheckpointedImpl>(
      std::dynamic_pointer_cast<torch::nn::SequentialImpl>(module_->clone(device)));
}

torch::Tensor CheckpointedImpl<torch::nn::AnyModule, void>::forward(const torch::Tensor& input) {
  // A copy of an AnyModule refers to the same module.
  const auto module = std::make_shared<torch::nn::AnyModule>(module_);
  return compute::checkpointed_call<torch::Tensor>(
      module_.ptr(), [module](const torch::Tensor& own) { return module->forward(own); },
      std::tuple(input));
}

std::shared_ptr<torch::nn::Module> CheckpointedImpl<torch::nn::AnyModule, void>::clone(
    const torch::optional<torch::Device>& device) const {
  return std::make_shared<CheckpointedImpl>(module_.clone(device));
}

Checkpointed<torch::nn::AnyModule> checkpointed(torch::nn::AnyModule module) {
  return Checkpointed<torch::nn::AnyModule>(
      std::make_shared<CheckpointedImpl<torch::nn::AnyModule>>(std::move(module)));
}

}  // namespace lockstep

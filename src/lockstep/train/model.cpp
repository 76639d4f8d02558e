#include "lockstep/train/model.h"

#include <fstream>

#include <torch/script.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/compute/planned_sequential.h"
#include "lockstep/data/describe.h"
#include "lockstep/train/weight_names.h"

namespace lockstep {
namespace {

std::string describe(const torch::Tensor& tensor) {
  return fmt::format("{} of shape [{}]", c10::toString(tensor.scalar_type()),
                     fmt::join(tensor.sizes().begin(), tensor.sizes().end(), ", "));
}

std::string describe_all(std::span<const torch::Tensor> tensors) {
  if (tensors.size() == 1) return data::describe(tensors.front());
  std::vector<std::string> parts;
  for (const torch::Tensor& tensor : tensors) parts.push_back(data::describe(tensor));
  return fmt::format("{} tensors{}{}", parts.size(), parts.empty() ? "" : ": ", join(parts, ", "));
}

}  // namespace

Outputs Model::Interface::outputs(std::span<const torch::Tensor> inputs) {
  if (inputs.size() != 1) refuse(inputs);
  return Outputs(forward(inputs.front()));
}

Outputs Model::Interface::batch_outputs(const Batch& batch) {
  refuse(batch);
}

void Model::Interface::refuse(std::span<const torch::Tensor> inputs) const {
  throw ConfigError("model: {}, got {}", signature(), describe_all(inputs));
}

void Model::Interface::refuse(const Batch& batch) const {
  throw ConfigError("model: {}, got a batch with {}", signature(), join(batch.keys(), ", "));
}

const Model& Model::Interface::network(std::string_view name) const {
  throw ConfigError("model: it is a single network, so it has no network '{}'", name);
}

std::string Model::signature_of(const SignatureParts& parts) {
  std::vector<std::string> inputs;
  for (const std::size_t count : parts.inputs) inputs.push_back(std::to_string(count));
  std::string takes;
  if (!inputs.empty()) {
    takes = fmt::format("{} tensor{}", join(inputs, " or "), parts.inputs.back() == 1 ? "" : "s");
  }
  if (parts.takes_batch) takes += takes.empty() ? "a batch" : " or a batch";
  return fmt::format("takes {} and returns {}", takes,
                     parts.returns_tensor  ? "a tensor"
                     : parts.returns_batch ? "a batch"
                                           : "several tensors");
}

Model::NativeBase::NativeBase(std::shared_ptr<torch::nn::Module> held) : module(std::move(held)) {
  if (module == nullptr) throw ConfigError("model: expected a module, got an empty holder");
}

NamedTensors Model::NativeBase::parameters() const {
  NamedTensors named;
  for (const auto& item : module->named_parameters()) named.emplace_back(item.key(), item.value());
  return named;
}

NamedTensors Model::NativeBase::buffers() const {
  NamedTensors named;
  for (const auto& item : module->named_buffers()) {
    // Batch norm without running statistics registers undefined buffers.
    if (item.value().defined()) named.emplace_back(item.key(), item.value());
  }
  return named;
}

void Model::NativeBase::train(bool on) {
  module->train(on);
}

bool Model::NativeBase::is_training() const {
  return module->is_training();
}

void Model::NativeBase::eval_modules(const ChooseModule& chosen) {
  for (const auto& item : module->named_modules()) {
    if (chosen(item.key())) item.value()->eval();
  }
}

void Model::NativeBase::change_modes(const ChooseMode& mode_of) {
  for (const auto& item : module->named_modules()) {
    const bool is_training = item.value()->is_training();
    const bool mode = mode_of(item.key(), is_training);
    if (mode != is_training) item.value()->train(mode);
  }
}

void Model::NativeBase::to(torch::Device device) {
  module->to(device);
}

struct Model::Sequential final : Model::NativeBase {
  explicit Sequential(const std::shared_ptr<torch::nn::SequentialImpl>& held)
      : NativeBase(held), planned(held), layers(held.get()) {}
  torch::Tensor forward(const torch::Tensor& input) override { return planned.forward(input); }
  // Only the first layer can take several tensors.
  Outputs outputs(std::span<const torch::Tensor> inputs) override {
    if (inputs.empty() || inputs.size() > kMostInputs) refuse(inputs);
    return inputs.size() == 1 ? Outputs(planned.forward(inputs.front())) : with<2>(inputs);
  }
  std::string signature() const override {
    return "takes what its first layer takes and returns a tensor";
  }

  template <std::size_t N>
  Outputs with(std::span<const torch::Tensor> inputs) {
    if constexpr (N < kMostInputs) {
      if (inputs.size() > N) return with<N + 1>(inputs);
    }
    return call(inputs, std::make_index_sequence<N>());
  }
  template <std::size_t... I>
  Outputs call(std::span<const torch::Tensor> inputs, std::index_sequence<I...>) {
    return Outputs(layers->forward(inputs[I]...));
  }

  compute::PlannedSequential planned;
  torch::nn::SequentialImpl* layers;
};

Model::Model(std::shared_ptr<torch::nn::SequentialImpl> module)
    : impl_(std::make_shared<Sequential>(std::move(module))) {}

namespace {

[[noreturn]] void refuse_returned(const c10::IValue& value) {
  throw ConfigError(
      "model: returned a {}, expected tensors, or tuples, lists and dictionaries of them",
      value.tagKind());
}

void append_tensors(const c10::IValue& value, std::vector<torch::Tensor>& tensors) {
  if (value.isTensor()) {
    tensors.push_back(value.toTensor());
  } else if (value.isTuple()) {
    for (const c10::IValue& part : value.toTupleRef().elements()) append_tensors(part, tensors);
  } else if (value.isList()) {
    for (const c10::IValue& part : value.toListRef()) append_tensors(part, tensors);
  } else {
    refuse_returned(value);
  }
}

Batch batch_of(const c10::IValue& dictionary) {
  Batch batch;
  for (const auto& entry : dictionary.toGenericDict()) {
    if (!entry.key().isString()) refuse_returned(entry.key());
    const std::string key = entry.key().toStringRef();
    const c10::IValue value = entry.value();
    if (value.isTensor()) {
      batch.set(key, value.toTensor());
    } else if (value.isGenericDict()) {
      batch.set(key, batch_of(value));
    } else {
      std::vector<torch::Tensor> list;
      append_tensors(value, list);
      batch.set(key, std::move(list));
    }
  }
  return batch;
}

Outputs outputs_of(const c10::IValue& returned) {
  if (returned.isTensor()) return Outputs(returned.toTensor());
  if (returned.isGenericDict()) return Outputs(batch_of(returned));
  std::vector<torch::Tensor> tensors;
  append_tensors(returned, tensors);
  return Outputs(tensors);
}

}  // namespace

struct Model::Script final : Model::Interface {
  // Of forward.
  struct Arguments {
    std::size_t least = 0;  // those without a default
    std::size_t most = 0;
    c10::TypeKind kind = c10::TypeKind::TensorType;  // of the first one
  };

  static Arguments arguments_of(const torch::jit::Module& module) {
    Arguments found;
    const auto forward = module.find_method("forward");
    if (!forward) {  // LibTorch's own message is then better
      found.most = kMostInputs;
      return found;
    }
    const auto& all = forward->function().getSchema().arguments();
    for (std::size_t i = 1; i < all.size(); ++i) {  // the first one is the module itself
      ++found.most;
      if (!all[i].default_value()) ++found.least;
    }
    if (found.most > 0) found.kind = all[1].type()->kind();
    return found;
  }

  explicit Script(torch::jit::Module held) : module(std::move(held)), taken(arguments_of(module)) {}

  torch::Tensor forward(const torch::Tensor& input) override {
    return outputs({&input, 1}).tensor();
  }

  Outputs outputs(std::span<const torch::Tensor> inputs) override {
    if (taken.kind == c10::TypeKind::ListType) {
      return outputs_of(module.forward({c10::List<torch::Tensor>(
          torch::ArrayRef<torch::Tensor>(inputs.data(), inputs.size()))}));
    }
    const bool fits = inputs.size() >= taken.least && inputs.size() <= taken.most;
    if (!fits || taken.kind == c10::TypeKind::DictType) refuse(inputs);
    return outputs_of(module.forward(std::vector<c10::IValue>(inputs.begin(), inputs.end())));
  }

  Outputs batch_outputs(const Batch& batch) override {
    if (!takes_batch() || !batch.lists().empty() || !batch.nested_batches().empty()) refuse(batch);
    c10::Dict<std::string, torch::Tensor> dictionary;
    for (const auto& [key, tensor] : batch) dictionary.insert(key, tensor);
    return outputs_of(module.forward({dictionary}));
  }

  bool takes_batch() const override { return taken.kind == c10::TypeKind::DictType; }

  std::string signature() const override {
    if (taken.kind == c10::TypeKind::DictType) return "takes a batch of tensors only";
    if (taken.kind == c10::TypeKind::ListType) return "takes a list of tensors";
    return fmt::format("takes {} tensors", taken.least == taken.most
                                               ? std::to_string(taken.most)
                                               : fmt::format("{} to {}", taken.least, taken.most));
  }

  const torch::jit::Module* script_module() const override { return &module; }
  NamedTensors parameters() const override { return named(module.named_parameters()); }
  NamedTensors buffers() const override { return named(module.named_buffers()); }
  void train(bool on) override { module.train(on); }
  bool is_training() const override { return module.is_training(); }
  void eval_modules(const ChooseModule& chosen) override {
    for (auto item : module.named_modules()) {
      if (chosen(item.name)) item.value.eval();
    }
  }
  void change_modes(const ChooseMode& mode_of) override {
    for (auto item : module.named_modules()) {
      const bool is_training = item.value.is_training();
      const bool mode = mode_of(item.name, is_training);
      if (mode != is_training) item.value.train(mode);
    }
  }
  void to(torch::Device device) override { module.to(device); }

  template <typename List>
  static NamedTensors named(const List& list) {
    NamedTensors out;
    for (const auto& item : list) out.emplace_back(item.name, item.value);
    return out;
  }

  torch::jit::Module module;
  Arguments taken;
};

Model Model::script(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) {
    throw ConfigError("model {}: no such file", path.string());
  }
  return script(std::ifstream(path, std::ios::binary), path.string());
}

Model Model::script(std::istream&& file, const std::string& name) {
  Model model;
  try {
    model.impl_ = std::make_shared<Script>(torch::jit::load(file));
  } catch (const std::exception& error) {
    throw ConfigError("model {}: expected a TorchScript file as torch.jit.save writes it: {}", name,
                      message_of(error));
  }
  return model;
}

NamedTensors Model::weights() const {
  NamedTensors all = parameters();
  for (auto& buffer : buffers()) all.push_back(std::move(buffer));
  return all;
}

Model::Modes Model::modes() const {
  Modes modes;
  impl_->change_modes([&](const std::string& name, bool is_training) {
    modes[name] = is_training;
    return is_training;
  });
  return modes;
}

void Model::set_modes(const Modes& modes) const {
  impl_->change_modes([&](const std::string& name, bool is_training) {
    const auto found = modes.find(name);
    return found == modes.end() ? is_training : found->second;
  });
}

StateDict Model::state() const {
  StateDict state;
  for (const auto& [name, tensor] : weights()) state.set(name, tensor.detach().clone());
  return state;
}

StateDict Model::view_state() const {
  std::vector<StateDict::Entry> entries;
  for (const auto& [name, tensor] : weights()) entries.emplace_back(name, tensor.detach());
  return StateDict(std::move(entries));
}

void Model::check_state(const StateDict& state) const {
  const NamedTensors own = weights();
  for (const auto& [name, tensor] : own) {
    const auto saved = state.get<torch::Tensor>(name);
    if (saved.sizes() != tensor.sizes() || saved.scalar_type() != tensor.scalar_type()) {
      throw CheckpointError("model weight '{}': expected {}, found {}", name, describe(tensor),
                            describe(saved));
    }
  }
  for (const auto& key : state.keys()) {
    if (std::ranges::any_of(own, [&](const auto& weight) { return weight.first == key; })) continue;
    const auto* const tensor = state.at(key).get_if<torch::Tensor>();
    const bool is_tied = tensor != nullptr && std::ranges::any_of(own, [&](const auto& weight) {
                           return is_same_weight(state.get<torch::Tensor>(weight.first), *tensor);
                         });
    if (is_tied) continue;
    throw CheckpointError("the checkpoint has a weight '{}', the model does not", key);
  }
}

void Model::load_state(const StateDict& state) const {
  check_state(state);
  torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : weights()) {
    torch::Tensor target = tensor;
    target.copy_(state.get<torch::Tensor>(name));
  }
}

}  // namespace lockstep

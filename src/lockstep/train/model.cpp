#include "lockstep/train/model.h"

#include <fstream>

#include <torch/script.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/compute/planned_sequential.h"

namespace lockstep {
namespace {

std::string describe(const torch::Tensor& tensor) {
  return fmt::format("{} of shape [{}]", c10::toString(tensor.scalar_type()),
                     fmt::join(tensor.sizes().begin(), tensor.sizes().end(), ", "));
}

}  // namespace

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

void Model::NativeBase::to(torch::Device device) {
  module->to(device);
}

struct Model::Sequential final : Model::NativeBase {
  explicit Sequential(const std::shared_ptr<torch::nn::SequentialImpl>& held)
      : NativeBase(held), planned(held) {}
  torch::Tensor forward(const torch::Tensor& input) override { return planned.forward(input); }
  compute::PlannedSequential planned;
};

Model::Model(std::shared_ptr<torch::nn::SequentialImpl> module)
    : impl_(std::make_shared<Sequential>(std::move(module))) {}

struct Model::Script final : Model::Interface {
  explicit Script(torch::jit::Module held) : module(std::move(held)) {}

  torch::Tensor forward(const torch::Tensor& input) override {
    const c10::IValue output = module.forward({input});
    if (!output.isTensor()) {
      throw ConfigError("model: expected forward to return a tensor, got a {}", output.tagKind());
    }
    return output.toTensor();
  }

  NamedTensors parameters() const override { return named(module.named_parameters()); }
  NamedTensors buffers() const override { return named(module.named_buffers()); }
  void train(bool on) override { module.train(on); }
  bool is_training() const override { return module.is_training(); }
  void to(torch::Device device) override { module.to(device); }

  template <typename List>
  static NamedTensors named(const List& list) {
    NamedTensors out;
    for (const auto& item : list) out.emplace_back(item.name, item.value);
    return out;
  }

  torch::jit::Module module;
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

StateDict Model::state() const {
  StateDict state;
  for (const auto& [name, tensor] : weights()) state.set(name, tensor.detach().clone());
  return state;
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
    const bool known = std::ranges::any_of(own, [&](const auto& w) { return w.first == key; });
    if (!known) throw CheckpointError("the checkpoint has a weight '{}', the model does not", key);
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

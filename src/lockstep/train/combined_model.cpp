#include "lockstep/train/combined_model.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/train/model.h"

namespace lockstep {

struct Model::Combined final : Model::Interface {
  explicit Combined(const Named<Model>& given) : networks(given.titled("models")) {}

  torch::Tensor forward(const torch::Tensor& input) override { return only().forward(input); }
  Outputs outputs(std::span<const torch::Tensor> inputs) override { return only().outputs(inputs); }
  Outputs batch_outputs(const Batch& batch) override { return only().outputs(batch); }
  bool takes_batch() const override { return networks.size() == 1 && only().takes_batch(); }
  std::string signature() const override {
    if (networks.size() == 1) return only().signature();
    return fmt::format("consists of the networks {}", join(networks.names(), ", "));
  }

  const Model& network(std::string_view name) const override { return networks.at(name); }

  // The network that a call means. Throws ConfigError if there are several.
  const Model& only() const {
    if (networks.size() == 1) return networks.begin()->second;
    const auto names = networks.names();
    throw ConfigError(
        "model: it consists of several networks ({0}) and cannot be called as a whole: call one of "
        "them, for example state.models[\"{1}\"], or model.network(\"{1}\") in an override of "
        "predict_batch",
        join(names, ", "), names.front());
  }

  NamedTensors parameters() const override { return all(&Model::parameters); }
  NamedTensors buffers() const override { return all(&Model::buffers); }
  void train(bool on) override {
    for (const auto& [name, network] : networks) network.train(on);
  }
  bool is_training() const override {
    return std::ranges::any_of(networks,
                               [](const auto& item) { return item.second.is_training(); });
  }
  void eval_modules(const ChooseModule& chosen) override {
    for (const auto& [network_name, network] : networks) {
      const std::string& outer = network_name;
      network.eval_modules([&](const std::string& name) {
        return chosen(name.empty() ? outer : outer + "." + name);
      });
    }
  }
  void change_modes(const ChooseMode& mode_of) override {
    for (const auto& [network_name, network] : networks) {
      const std::string& outer = network_name;
      network.impl_->change_modes([&](const std::string& name, bool is_training) {
        return mode_of(name.empty() ? outer : outer + "." + name, is_training);
      });
    }
  }
  void to(torch::Device device) override {
    for (const auto& [name, network] : networks) network.to(device);
  }

  NamedTensors all(NamedTensors (Model::*tensors)() const) const {
    NamedTensors found;
    for (const auto& [name, network] : networks) {
      for (auto& item : in_network(name, (network.*tensors)())) found.push_back(std::move(item));
    }
    return found;
  }

  Named<Model> networks;
};

Model Model::combine(const Named<Model>& networks) {
  if (networks.empty()) throw ConfigError("models: expected at least one network, got none");
  for (const auto& [name, network] : networks) {
    check_network_name(name);
    if (!network) throw ConfigError("models: expected a network '{}', got an empty one", name);
  }
  Model model;
  model.impl_ = std::make_shared<Combined>(networks);
  return model;
}

NamedTensors in_network(const std::string& network, NamedTensors tensors) {
  for (auto& [name, tensor] : tensors) name = network + "." + name;
  return tensors;
}

void check_network_name(const std::string& name) {
  if (!name.empty() && name.find_first_of("./") == std::string::npos) return;
  throw ConfigError(
      "models: expected a name without dots and slashes, because the names of weights and metrics "
      "contain it, got '{}'",
      name);
}

}  // namespace lockstep

#include "lockstep/science/scripted_network.h"

#include <map>
#include <sstream>

#include <torch/nn/modules.h>
#include <torch/script.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/process/environment.h"

namespace lockstep::science {
namespace {

constexpr const char* kScript = "model_script.pt";

}  // namespace

ScriptedNetwork::ScriptedNetwork(const std::filesystem::path& script, NetworkConfig config)
    : Network(std::move(config)) {
  script_ = reading<DataError>({.path = script, .kind = "ScriptedNetwork:"},
                               [&] { return read_file(script); });
  Model::script(std::istringstream(script_), script.string());
}

Model ScriptedNetwork::make_model(const FieldShape&) const {
  if (script_.empty()) throw Error("ScriptedNetwork: it has no script: call load() first");
  return Model::script(std::istringstream(script_), name());
}

Criterion ScriptedNetwork::criterion() const {
  return torch::nn::SmoothL1Loss();
}

void ScriptedNetwork::save(const std::filesystem::path& folder) const {
  Network::save(folder);
  if (!process::is_primary_process()) return;
  std::istringstream in(script_);
  torch::jit::Module module = torch::jit::load(in);
  const torch::NoGradGuard no_grad;
  std::map<std::string, torch::Tensor> weights;
  for (const auto& [name, tensor] : model().weights()) weights[name] = tensor;
  for (const auto& parameter : module.named_parameters()) {
    parameter.value.copy_(weights.at(parameter.name));
  }
  for (const auto& buffer : module.named_buffers()) buffer.value.copy_(weights.at(buffer.name));
  std::ostringstream out;
  module.save(out);
  write_file_atomically(folder / kScript, out.str());
}

void ScriptedNetwork::load(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / kScript;
  std::string script = reading<CheckpointError>({.path = file}, [&] { return read_file(file); });
  std::swap(script_, script);
  try {
    Network::load(folder);
  } catch (...) {
    std::swap(script_, script);
    throw;
  }
}

}  // namespace lockstep::science

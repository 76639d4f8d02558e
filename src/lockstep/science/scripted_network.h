// A network that Python wrote as TorchScript.
#pragma once

#include <string>

#include "lockstep/science/network.h"

namespace lockstep::science {

// Trained with a smooth L1 loss from the weights that are in the file.
class ScriptedNetwork : public Network {
 public:
  // The file is read here. Throws DataError where it cannot be, ConfigError where it is no
  // TorchScript.
  ScriptedNetwork(const std::filesystem::path& script, NetworkConfig config);
  // One that is to be loaded.
  explicit ScriptedNetwork(NetworkConfig config) : Network(std::move(config)) {}

  std::string name() const override { return "ScriptedNetwork"; }
  // Also model_script.pt, the module with its weights as they are now, which torch.jit.load reads.
  void save(const std::filesystem::path& folder) const override;
  void load(const std::filesystem::path& folder) override;

 protected:
  Model make_model(const FieldShape& shape) const override;
  Criterion criterion() const override;

 private:
  std::string script_;  // what is in the file
};

}  // namespace lockstep::science

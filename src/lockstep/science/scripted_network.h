// A network that Python wrote as TorchScript.
#pragma once

#include <string>

#include "lockstep/science/network.h"

namespace lockstep::science {

// It is trained with a smooth L1 loss, starting from the weights in the file.
class ScriptedNetwork : public Network {
 public:
  // Reads the file. Throws DataError if it cannot be read, ConfigError if it is not TorchScript.
  ScriptedNetwork(const std::filesystem::path& script, NetworkConfig config);
  // A network without a script: call load() before training or predicting.
  explicit ScriptedNetwork(NetworkConfig config) : Network(std::move(config)) {}

  std::string name() const override { return "ScriptedNetwork"; }
  // Also model_script.pt, the module with its weights as they are now, which torch.jit.load reads.
  void save(const std::filesystem::path& folder) const override;
  void load(const std::filesystem::path& folder) override;

 protected:
  Model make_model(const FieldShape& shape) const override;
  Criterion criterion() const override;

 private:
  std::string script_;  // the content of the file
};

}  // namespace lockstep::science

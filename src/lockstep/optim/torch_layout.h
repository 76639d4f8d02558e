// The layout in which the optimizers of Python's torch.optim save their state:
//
//   {"state": {0: {"step": 7, "exp_avg": tensor, …}, 1: …},
//    "param_groups": [{"lr": 0.1, "betas": [0.9, 0.999], …, "params": [0, 1, …],
//                      "param_names": ["0.weight", "0.bias", …]}]}
//
// Parameters are numbers there, which count through all groups. Python before 2.6 writes no names,
// and later versions only if the optimizer was given them. Lockstep always writes them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/state/state_dict.h"

namespace lockstep::optim {

// Parameters that have the same hyper-parameters.
struct ParameterGroup {
  std::vector<std::string> names;  // in the order of the model
  StateDict options = {};          // hyper-parameters; "beta1" and "beta2" are "betas" in a file
};

// The same as the layout above, by name.
struct TorchState {
  std::vector<ParameterGroup> groups = {};
  // The parameters that have a state: {"step", "exp_avg", …} of each.
  std::vector<std::pair<std::string, StateDict>> parameters = {};
};

// The parameters of an optimizer, for a state without names.
struct TorchNames {
  std::string optimizer;                    // for messages
  std::vector<ParameterGroup> groups = {};  // only their names are used
  std::vector<std::string> all = {};        // in the order of the model
  std::vector<std::string> trainable = {};  // those of them that require a gradient
};

bool has_torch_layout(const StateDict& state);

StateDict to_torch_layout(const TorchState& state);

// Parameters without names are taken in the order of `names`: by groups if Python had the same
// groups, else all, or all that can be trained, in the order of the model. Throws CheckpointError
// if that is not possible, and if the state does not have this layout.
TorchState from_torch_layout(const StateDict& state, const TorchNames& names);

// A count of steps, which is an integer, a real number or a tensor, depending on PyTorch's version.
// Throws CheckpointError for anything else.
std::int64_t steps_from(const StateValue& value);

// The same as a tensor of one element, as PyTorch 1.12 and later have it.
torch::Tensor steps_as_tensor(std::int64_t steps);

}  // namespace lockstep::optim

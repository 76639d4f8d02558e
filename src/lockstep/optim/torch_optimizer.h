// Uses a torch::optim::Optimizer as one of Lockstep's optimizers.
#pragma once

#include <memory>
#include <string>

#include <torch/optim/optimizer.h>

#include "lockstep/optim/optimizer.h"

namespace lockstep::optim {

// "torch::optim::SGD(lr=0.1, momentum=0.9, …)": its name, and all options of each of its groups. If
// the options of a user's class have no serialize(), only their learning rate is known.
std::string describe(const torch::optim::Optimizer& optimizer);

struct TorchOptimizerOptions {
  // If true, parameters that were frozen when the run began are added to the first group when they
  // are unfrozen. If false, the optimizer trains only the parameters for which it was made.
  bool adds_unfrozen = false;
};

// Throws ConfigError if one of its parameters is not among `parameters`, if it has none, and for
// LBFGS, which evaluates the loss itself. Its state is torch's own archive, together with the
// learning rates and the momenta; other options stay as the optimizer was made. It resumes to the
// bit, but the archive's bytes differ from run to run, and loading an archive that does not fit may
// leave the optimizer changed.
std::unique_ptr<Optimizer> make_optimizer(std::shared_ptr<torch::optim::Optimizer> optimizer,
                                          FlatParameters& parameters,
                                          const TorchOptimizerOptions& options = {});

}  // namespace lockstep::optim

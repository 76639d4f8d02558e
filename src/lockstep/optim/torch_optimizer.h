// A torch::optim::Optimizer in the place of ours.
#pragma once

#include <memory>

#include <torch/optim/optimizer.h>

#include "lockstep/optim/optimizer.h"

namespace lockstep::optim {

struct TorchOptimizerOptions {
  // Parameters that were frozen when the run began join the first group once they are unfrozen.
  // Else the optimizer trains what it was made for, and nothing more.
  bool adds_unfrozen = false;
};

// Throws ConfigError where one of its parameters is not among `parameters`, where it has none, and
// for LBFGS, which evaluates the loss itself. Its state is torch's own archive, with the learning
// rates and the momentum beside it; other options stay as they were made. It resumes to the bit,
// but the archive's bytes differ from run to run, and one that does not fit may leave it changed.
std::unique_ptr<Optimizer> make_optimizer(std::shared_ptr<torch::optim::Optimizer> optimizer,
                                          FlatParameters& parameters,
                                          const TorchOptimizerOptions& options = {});

}  // namespace lockstep::optim

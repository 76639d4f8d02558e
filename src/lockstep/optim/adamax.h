// Adamax over flat parameters.
#pragma once

#include <memory>

#include "lockstep/optim/optimizer.h"

namespace lockstep::optim {

std::unique_ptr<Optimizer> make_optimizer(const Adamax& options, FlatParameters& parameters);

}  // namespace lockstep::optim

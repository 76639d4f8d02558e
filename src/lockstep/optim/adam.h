// Adam and AdamW over flat parameters.
#pragma once

#include <memory>

#include "lockstep/optim/optimizer.h"

namespace lockstep::optim {

std::unique_ptr<Optimizer> make_optimizer(const Adam& options, FlatParameters& parameters);
std::unique_ptr<Optimizer> make_optimizer(const AdamW& options, FlatParameters& parameters);

}  // namespace lockstep::optim

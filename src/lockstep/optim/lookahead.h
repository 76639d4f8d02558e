// Lookahead around any optimizer.
#pragma once

#include <memory>
#include <string>

#include "lockstep/optim/optimizer.h"

namespace lockstep::optim {

std::unique_ptr<Optimizer> make_optimizer(const Lookahead& options, FlatParameters& parameters);

// "Lookahead(k=5, alpha=0.5, optimizer=…)", with the description of the optimizer in it.
std::string describe_lookahead(const Lookahead& options, const std::string& optimizer);

}  // namespace lockstep::optim

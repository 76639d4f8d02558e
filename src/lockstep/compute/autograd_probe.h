// After a fork, autograd may refuse to work, or hang. This detects it early.
#pragma once

namespace lockstep::compute {

// Whether autograd works in this process, found by a small trial.
bool autograd_works();

}  // namespace lockstep::compute

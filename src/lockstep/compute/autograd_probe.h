// After a fork, autograd may refuse to work, or hang; better to know before.
#pragma once

namespace lockstep::compute {

// Whether autograd works in this process, by a small try.
bool autograd_works();

}  // namespace lockstep::compute

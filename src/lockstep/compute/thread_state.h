// State of a thread that a computation in another thread must find, too.
//
// A checkpointed module (checkpointed.h) is computed again in the thread that runs backward(). On a
// GPU this is one of autograd's threads. The module must find the state there that it had in
// forward().
#pragma once

#include <functional>
#include <memory>
#include <vector>

namespace lockstep::compute {

// Sets a state of the calling thread. The destructor of the result restores the earlier one.
using SetThreadState = std::function<std::shared_ptr<void>()>;

// Makes a kind of state one that is inherited. `capture` is called in the thread that has the
// state, and what it returns is called in the other one. To be called once for each kind, for the
// rest of the process.
void inherit_thread_state(std::function<SetThreadState()> capture);

// The state of this thread, of all kinds.
std::vector<SetThreadState> captured_thread_state();

}  // namespace lockstep::compute

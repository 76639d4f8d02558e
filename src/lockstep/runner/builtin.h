// The callbacks that train()'s options ask for: verbose, timeit, check, overfit, logdir, scheduler.
// Declared here and defined in callback/builtin.cpp, so that the loop never includes a callback.
#pragma once

#include "lockstep/runner/callback.h"
#include "lockstep/runner/options.h"

namespace lockstep {

// What `options` ask for beyond `given`; what the user gave himself is not added again.
Callbacks builtin_callbacks(const TrainOptions& options, const Callbacks& given);

// What evaluate_loader's `verbose` asks for.
CallbackPtr progress_callback();

}  // namespace lockstep

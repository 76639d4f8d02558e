// The callbacks that train()'s options ask for: verbose, timeit, check, overfit, logdir, scheduler.
#pragma once

#include "lockstep/train/callback.h"
#include "lockstep/train/options.h"

namespace lockstep {

// What `options` ask for beyond `given`; what the user gave himself is not added again.
Callbacks builtin_callbacks(const TrainOptions& options, const Callbacks& given);

// What evaluate_loader's `verbose` asks for.
CallbackPtr progress_callback();

}  // namespace lockstep

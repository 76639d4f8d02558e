// The callbacks that options of train() request: verbose, timeit, check, overfit, logdir,
// scheduler, and the settings of optimizers that freeze parameters.
#pragma once

#include "lockstep/train/callback.h"
#include "lockstep/train/options.h"

namespace lockstep {

// The user's callbacks in `options`, followed by those that the other options request and that the
// user has not passed already.
Callbacks with_builtin_callbacks(const TrainOptions& options);

// The callback that evaluate_loader's `verbose` requests.
CallbackPtr progress_callback();

}  // namespace lockstep

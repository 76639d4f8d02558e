// The callbacks that options of train() request: verbose, timeit, check, overfit, logdir,
// scheduler.
#pragma once

#include "lockstep/train/callback.h"
#include "lockstep/train/options.h"

namespace lockstep {

// The callbacks that `options` request, without those that the user already passed in `given`.
Callbacks builtin_callbacks(const TrainOptions& options, const Callbacks& given);

// The callback that evaluate_loader's `verbose` requests.
CallbackPtr progress_callback();

}  // namespace lockstep

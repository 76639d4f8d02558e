// What a run says of itself when it is over: summary.json, the profile, the last lines.
#pragma once

#include <string>

#include "lockstep/log/profiler.h"
#include "lockstep/train/options.h"
#include "lockstep/train/state.h"

namespace lockstep {

// A line on standard output, unless the run was told to be silent.
void say(const TrainOptions& options, const std::string& line);

// Writes logdir/summary.json and, where it was asked for, logdir/profile.json, and says the rest.
void report_run(const TrainResult& result, const State& state, const TrainOptions& options,
                std::span<const std::string> profiles);

// After a signal ended the run: where it was, what was saved, and how to go on.
void report_interruption(const State& state, const TrainOptions& options);

}  // namespace lockstep

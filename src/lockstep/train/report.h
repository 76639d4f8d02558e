// What a run reports when it is over: summary.json, the profile, the last lines of output.
#pragma once

#include <string>

#include "lockstep/log/profiler.h"
#include "lockstep/train/options.h"
#include "lockstep/train/state.h"

namespace lockstep {

// Prints a line on standard output, unless the options turn the console off.
void say(const TrainOptions& options, const std::string& line);

// Writes logdir/summary.json and, if requested, logdir/profile.json and operators.txt, and
// prints the rest. `operators` is the table of an OperatorProfile.
void report_run(const TrainResult& result, const State& state, const TrainOptions& options,
                std::span<const std::string> profiles, const std::string& operators = "");

// After a signal ended the run: prints where it was, what was saved, and how to continue.
void report_interruption(const State& state, const TrainOptions& options);

}  // namespace lockstep

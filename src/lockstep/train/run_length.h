// How long a run is, in epochs and in steps, which are updates of the model. All that the options
// num_steps, steps_per_epoch, valid_every and limit_batches mean is decided here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/data/batch_window.h"
#include "lockstep/data/loaders.h"
#include "lockstep/optim/scheduler.h"
#include "lockstep/train/options.h"
#include "lockstep/train/state.h"

namespace lockstep {

struct RunLength {
  std::int64_t num_epochs = 1;
  std::int64_t steps_per_epoch = 1;       // of a whole epoch
  std::optional<std::int64_t> num_steps;  // of the run, if they are limited
  bool goes_on = false;  // an epoch begins with the batch after the last one of the epoch before
  std::int64_t accumulation_steps = 1;
  std::int64_t valid_every = 1;

  optim::ScheduleContext schedule() const;

  // The number of the last epoch of a run that is where `state` says, also after a resume from a
  // run of another length.
  std::int64_t last_epoch(const ProgressState& state) const;

  // Whether a loader has a pass in the current epoch.
  bool has_pass(const std::string& loader, const Progress& progress) const;

  // The batches of a pass in the current epoch, of which `first_batch` were done before a resume.
  data::WindowOptions window(const std::string& loader, const ProgressState& state,
                             std::int64_t first_batch) const;
};

// Throws ConfigError for options that make no sense, whatever is trained.
void check_length(const TrainOptions& options);

// The loaders with the limits of limit_batches. A train loader whose stream does not tell its
// number of samples gets the batches of steps_per_epoch, or else those of num_steps, unless it has
// max_batches. Throws ConfigError if a limit applies to no loader, or if it is not known how many
// batches a loader has.
data::Loaders limited_loaders(const TrainOptions& options, std::int64_t shards);

// The length of a run with these loaders, which are limited already. Throws ConfigError if steps
// are to be counted and there are several train loaders.
RunLength length_of(const TrainOptions& options, const data::Loaders& loaders, std::int64_t shards);

// "8 epochs", "8 epochs of 30 steps", "1,000 steps"
std::string describe(const RunLength& length);

}  // namespace lockstep

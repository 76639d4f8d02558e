// Tries a plan with a few samples before the run starts, so that a validation loader that does not
// fit the model is found at once and not after the first epoch. See docs/decisions/plan.md.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/data/batch.h"
#include "lockstep/data/loader.h"
#include "lockstep/train/plan.h"

namespace lockstep {

struct DryRunOptions {
  std::int64_t samples =
      2;  // of each loader, that go through model, criterion and metrics; 0: none
  std::int64_t targets = 2;  // of each loader, that must be classes for which there are outputs
  // Also makes optimizers and schedulers, steps through the whole schedule, and calls check() of
  // all callbacks. Costs a copy of the parameters.
  bool optimizer = false;
  bool files = false;  // also reads the files that `weights` and `resume` name
};

// Sends samples of every loader through model, criterion and metrics, without gradients and in
// evaluation mode. Throws PlanError, which names the part that does not fit. The model's mode and
// buffers and the random state of the CPU are the same afterwards.
//
// Only what is known to happen in the run is tried. If the plan has no keys, or if a callback may
// change batches, the samples are only read. A criterion that is a function is not called, because
// it may have captured anything.
void dry_run(const Plan& plan, const DryRunOptions& options = {});

// The first samples of a loader's data set, at most `count`. Throws DataError if there are none,
// and what the data set throws.
Batch first_samples(const data::Loader& loader, std::int64_t count);

// The batch's tensor of this key. If there is none, throws ConfigError with the nearest key.
const torch::Tensor& tensor_of(const Batch& batch, const std::string& key);

}  // namespace lockstep

// Mixed precision in a run: which one the options ask for, and what callbacks and predictions see
// of it (docs/decisions/precision.md).
#pragma once

#include <optional>
#include <string>

#include <torch/types.h>

#include "lockstep/base/precision.h"
#include "lockstep/data/batch.h"
#include "lockstep/optim/grad_scaler.h"
#include "lockstep/state/state_dict.h"

namespace lockstep {

struct ShardState;
struct TrainOptions;

// The precision that `precision`, `fp16` and `amp` ask for. Throws ConfigError if they contradict
// each other, and as check_precision() does.
Precision precision_of(const TrainOptions& options, const torch::Device& device);

// None if the loss is not scaled.
std::optional<optim::GradScalerOptions> scaler_of(const TrainOptions& options, Precision precision);

// Warns once if the device is a CPU on which the precision is slow.
void warn_of_slow_precision(Precision precision, const torch::Device& device);

// The precision of the run that made a snapshot. None if it is not known: the snapshot is older, or
// has only weights.
std::optional<Precision> saved_precision(const StateDict& snapshot);

// Makes every tensor of 16 bits float32: autocast gives such outputs, and neither metrics nor files
// should be rounded to 3 digits.
void widen(Batch& batch);
// The same for the batch of a shard, whose loss stays a mean over what it was.
void widen(ShardState& shard, const std::string& loss_key);

}  // namespace lockstep

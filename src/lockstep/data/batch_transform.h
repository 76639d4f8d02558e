// Changes a whole batch after it is made, several of its tensors at once: Mixup, CutMix
// (transform/mix.h), or a function. A loader has one in its options:
//
//   Loader loader = {train, {.batch_size = 64, .batch_transform = Mixup({.alpha = 0.2, .classes =
//   10})}};
#pragma once

#include <functional>

#include "lockstep/data/batch.h"
#include "lockstep/data/random.h"

namespace lockstep::data {

// Gets a shard's part of a batch. The random numbers are a function of (seed, epoch, first sample
// of this part), so results do not depend on threads or workers, but on the number of shards. Must
// be safe to call from several threads at once, and must not write into the tensors.
using BatchTransform = std::function<Batch(Batch batch, SampleRandom& random)>;

}  // namespace lockstep::data

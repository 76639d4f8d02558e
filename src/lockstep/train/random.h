// Random numbers inside a batch (dropout, augmentation) depend on where the batch is in the run and
// on nothing else, so a resumed run draws what the straight one would have drawn.
#pragma once

#include <cstdint>

namespace lockstep {

enum class Draws { kModel, kData };

struct DrawKey {
  std::uint64_t seed = 42;
  std::int64_t epoch = 0;
  std::int64_t loader = 0;      // its index in the epoch
  std::int64_t batch = 0;       // global
  std::int64_t shard = 0;       // of it
  Draws draws = Draws::kModel;  // what a transform draws does not move what dropout draws
};

std::uint64_t mix_seed(const DrawKey& key);

// Sets LibTorch's global generators.
void seed_draws(const DrawKey& key);

}  // namespace lockstep

// Random numbers inside a batch (dropout, augmentation) depend only on the position of the batch in
// the run. So a resumed run draws the numbers that an uninterrupted run would have drawn.
#pragma once

#include <cstdint>

namespace lockstep {

enum class Draws { kModel, kData };

struct DrawKey {
  std::uint64_t seed = 42;
  std::int64_t epoch = 0;
  std::int64_t loader = 0;      // its index in the epoch
  std::int64_t batch = 0;       // global
  std::int64_t shard = 0;       // of the batch
  Draws draws = Draws::kModel;  // transforms and dropout draw independently of each other
};

std::uint64_t mix_seed(const DrawKey& key);

// Sets LibTorch's global generators.
void seed_draws(const DrawKey& key);

}  // namespace lockstep

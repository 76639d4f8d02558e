// Random numbers inside a batch (dropout, augmentation) depend only on the position of the batch in
// the run. So a resumed run draws the numbers that an uninterrupted run would have drawn.
#pragma once

#include <cstdint>

#include <ATen/core/Generator.h>
#include <torch/types.h>

namespace lockstep {

enum class Draws { kModel, kData };

struct DrawKey {
  std::uint64_t seed = 42;
  std::int64_t epoch = 0;
  std::int64_t loader = 0;      // its index in the epoch
  std::int64_t batch = 0;       // global
  std::int64_t shard = 0;       // of the batch
  Draws draws = Draws::kModel;  // transforms and dropout draw independently of each other
  std::int64_t phase = 0;       // its index; the first one has the numbers of a run without phases
};

std::uint64_t mix_seed(const DrawKey& key);

// Sets LibTorch's global generators.
void seed_draws(const DrawKey& key);

// The same for what callbacks draw outside of batches. The numbers of each hook depend on the seed,
// the epoch and the loader only, so they are the same on every rank and in a resumed run.
enum class DrawHook { kRunStart, kEpochStart, kLoaderStart, kLoaderEnd, kEpochEnd };
void seed_hook(DrawHook hook, DrawKey key);

// The destructor restores the state that LibTorch's generators have now: that of the CPU and, if
// CUDA has been started, that of the current GPU. A generator's state is in the memory of the CPU,
// so nothing waits for the GPU.
class RandomStateScope {
 public:
  RandomStateScope();
  ~RandomStateScope();
  RandomStateScope(const RandomStateScope&) = delete;
  RandomStateScope& operator=(const RandomStateScope&) = delete;

 private:
  torch::Tensor cpu_state_;
  torch::Tensor gpu_state_;  // undefined if CUDA was not started
  at::Generator gpu_generator_;
};

}  // namespace lockstep

#include "lockstep/train/random.h"

#include <exception>
#include <mutex>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <torch/utils.h>

#include "lockstep/engine/devices.h"

namespace lockstep {
namespace {

// splitmix64: every bit of the input reaches every bit of the output.
std::uint64_t splitmix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

torch::Tensor generator_state(at::Generator generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_generator_state(at::Generator generator, const torch::Tensor& state) {
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

}  // namespace

std::uint64_t mix_seed(const DrawKey& key) {
  std::uint64_t mixed = splitmix(key.seed);
  for (const std::int64_t part :
       {key.epoch, key.loader, key.batch, key.shard, static_cast<std::int64_t>(key.draws)}) {
    mixed = splitmix(mixed ^ static_cast<std::uint64_t>(part));
  }
  return key.phase == 0 ? mixed : splitmix(mixed ^ static_cast<std::uint64_t>(key.phase));
}

void seed_draws(const DrawKey& key) {
  manual_seed(mix_seed(key));
}

// Batches have numbers from 0, so negative ones are free.
void seed_hook(DrawHook hook, DrawKey key) {
  key.batch = -1 - static_cast<std::int64_t>(hook);
  seed_draws(key);
}

RandomStateScope::RandomStateScope()
    : cpu_state_(generator_state(at::detail::getDefaultCPUGenerator())) {
  if (!cuda_is_started()) return;
  gpu_generator_ = at::globalContext().defaultGenerator(torch::kCUDA);
  gpu_state_ = generator_state(gpu_generator_);
}

RandomStateScope::~RandomStateScope() {
  set_generator_state(at::detail::getDefaultCPUGenerator(), cpu_state_);
  if (!gpu_generator_.defined()) return;
  try {
    set_generator_state(gpu_generator_, gpu_state_);
  } catch (const std::exception&) {
    // LibTorch asks the GPU whether it records a graph. If the GPU has failed, that throws, the run
    // ends with the failure, and nothing draws numbers any more.
  }
}

}  // namespace lockstep

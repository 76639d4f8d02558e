#include "lockstep/engine/engine.h"

#include <torch/cuda.h>
#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/local.h"
#include "lockstep/compute/memory.h"
#include "lockstep/compute/pooling.h"
#include "lockstep/engine/blas.h"

namespace lockstep {
namespace {

torch::Device default_device() {
  return torch::cuda::is_available() ? torch::Device(torch::kCUDA, 0) : torch::Device(torch::kCPU);
}

}  // namespace

void Engine::run(const Job& job) {
  set_up_process();
  job.prepare();
  start();
  const compute::FlushDenormals flush;  // after start(), which sets the number of threads
  comm::Local alone;
  job.work(alone);
}

void Engine::backward(const torch::Tensor& loss, const torch::Tensor& gradient) {
  loss.backward(gradient);
}

void set_up_process() {
  compute::keep_memory();
  compute::install_pooling();
}

DeviceEngine::DeviceEngine(DeviceEngineOptions options)
    : device_(options.device.value_or(default_device())), threads_(options.threads) {
  if (device_.is_cuda() && !torch::cuda::is_available()) {
    throw ConfigError("device: expected 'cpu', got '{}', but this machine has no usable GPU",
                      device_.str());
  }
  if (threads_ && *threads_ < 1) {
    throw ConfigError("threads: expected 1 or more, got {}", *threads_);
  }
}

void DeviceEngine::start() {
  if (device_.is_cpu()) warn_of_slow_blas();
  if (threads_) torch::set_num_threads(*threads_);
}

}  // namespace lockstep

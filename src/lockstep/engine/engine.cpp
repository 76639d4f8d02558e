#include "lockstep/engine/engine.h"

#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/local.h"
#include "lockstep/compute/memory.h"
#include "lockstep/compute/pooling.h"
#include "lockstep/engine/blas.h"
#include "lockstep/engine/devices.h"

namespace lockstep {

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
    : device_(torch::kCPU), threads_(options.threads) {
  if (!options.device || options.device->is_cuda()) {
    const UsableGpus gpus = usable_gpus();
    if (options.device) check_device(*options.device, gpus);
    // A launcher's variables do not matter without a GPU, and for a certain one.
    const bool is_certain = options.device && options.device->has_index();
    device_ =
        choose_device({.wanted = options.device,
                       .local_rank = gpus.count > 0 && !is_certain ? launched_local_rank() : 0,
                       .gpus = gpus.count});
  } else {
    device_ = *options.device;
  }
  if (threads_ && *threads_ < 1) {
    throw ConfigError("threads: expected 1 or more, got {}", *threads_);
  }
}

void DeviceEngine::start() {
  use_device(device_);
  if (device_.is_cpu()) warn_of_slow_blas();
  if (threads_) torch::set_num_threads(*threads_);
}

}  // namespace lockstep

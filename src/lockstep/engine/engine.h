// Where and how the arithmetic of a run happens: on which device, by how many workers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include <torch/types.h>

#include "lockstep/comm/communicator.h"

namespace lockstep {

class Engine {
 public:
  virtual ~Engine() = default;

  // This worker's.
  virtual torch::Device device() const = 0;

  // Processes that train together.
  virtual std::int64_t workers() const = 0;

  // Parts that every batch is split into, at least one a worker. What is trained depends on it, not
  // on the number of workers.
  virtual std::int64_t shards() const { return workers(); }

  // Called before a model is used in this process.
  virtual void start() = 0;

  // Statistics of batch norm are taken over all workers' samples.
  virtual bool synchronizes_batch_norm() const { return false; }

  // One host's workers have the parameters in common, and each updates its part of them.
  virtual bool shares_updates() const { return true; }

  struct Job {
    // Makes what is trained. Where the workers are forked, once, before; where a launcher started
    // them, in each, on rank 0 first: it may download what the others then find.
    std::function<void()> prepare;
    std::function<void(comm::Communicator&)> work;  // on every worker
  };
  // Returns when all workers are done, in the process that called it. Throws what `prepare` or
  // `work` threw here, and WorkerError for what happened to others.
  virtual void run(const Job& job);
};

// What every engine does in a process that trains, and only once: see compute/switches.h.
void set_up_process();

struct DeviceEngineOptions {
  std::optional<torch::Device> device;  // default: the first GPU, else the CPU
  std::optional<int> threads;           // for arithmetic inside an operation; default: LibTorch's
};

// One process, one device.
class DeviceEngine : public Engine {
 public:
  explicit DeviceEngine(DeviceEngineOptions options = {});

  torch::Device device() const override { return device_; }
  std::int64_t workers() const override { return 1; }
  void start() override;

 private:
  torch::Device device_;
  std::optional<int> threads_;
};

}  // namespace lockstep

// Where the computations of a run are done: on which device, by how many workers.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>

#include <torch/types.h>

#include "lockstep/comm/communicator.h"
#include "lockstep/process/host_group.h"

namespace lockstep {

class Engine {
 public:
  virtual ~Engine() = default;

  // The device of this worker.
  virtual torch::Device device() const = 0;

  // The number of processes that train together.
  virtual std::int64_t workers() const = 0;

  // The number of parts that every batch is split into, at least one per worker. The trained
  // weights depend on it, but not on the number of workers.
  virtual std::int64_t shards() const { return workers(); }

  // Whether run() forks workers from the calling process.
  virtual bool forks_workers() const { return false; }

  // Called before a model is used in this process.
  virtual void start() = 0;

  // Whether statistics of batch norm are computed over the samples of all workers.
  virtual bool synchronizes_batch_norm() const { return false; }

  // How the workers of a run are made anew after a failure.
  enum class Restarts {
    kNever,       // they cannot be
    kByRun,       // run() does it (Job::try_again)
    kByLauncher,  // the launcher that started them does it, by starting the program again
  };
  virtual Restarts restarts() const { return Restarts::kNever; }

  // Whether the workers of one host share the memory of the parameters, and each updates its part.
  virtual bool shares_updates() const { return true; }

  // Hooks for an engine of your own, for example with other number types or a scaled loss. They are
  // called on every worker, and the defaults change nothing.
  //
  // Around the forward pass and the loss of a shard, in training, evaluation and prediction. Must
  // call `body` once.
  virtual void forward(const std::function<void()>& body) { body(); }
  // Adds the gradients of `loss` times `gradient`, which is undefined for 1.
  virtual void backward(const torch::Tensor& loss, const torch::Tensor& gradient);
  // Around an update: before the gradients of all shards are summed, and after the step of the
  // optimizer. Phases have updates of their own.
  virtual void before_step() {}
  virtual void after_step() {}
  // The sum of the gradients is multiplied by it before clipping and the step: 1 / s if backward()
  // multiplied the loss by s. Called after before_step(). Must be the same on all workers.
  virtual double gradient_factor() const { return 1.0; }

  // Why an attempt failed.
  struct AttemptFailure {
    std::exception_ptr error;                       // what this process would throw
    std::optional<process::RankFailure> rank = {};  // the rank that failed first, if it is known
  };

  struct Job {
    // Makes what is trained. If the workers are forked, it is called once, before the fork. If a
    // launcher started them, it is called in each worker, on rank 0 first: rank 0 may download
    // files that the other workers then find.
    std::function<void()> prepare;
    std::function<void(comm::Communicator&)> work;  // on every worker

    // Called in this process when an attempt to do the work has failed and its workers are gone.
    // Returns whether to try again with new workers. Empty: there is one attempt. Called only if
    // restarts() is kByRun.
    std::function<bool(const AttemptFailure&)> try_again = {};
    // If not all workers can be made anew, fewer are enough, but not fewer than this.
    int min_workers = 1;
  };
  // Returns in the calling process when all workers are done. Throws what `prepare` or `work` threw
  // in this process, and WorkerError if another worker failed.
  virtual void run(const Job& job);
};

// Sets up a process that trains. Every engine calls it, and it has an effect only once. See
// compute/switches.h.
void set_up_process();

struct DeviceEngineOptions {
  // Default: the first GPU, under a launcher that of the local rank, else the CPU. cuda: the same,
  // but not the CPU.
  std::optional<torch::Device> device;
  std::optional<int> threads;  // inside an operation; default: as many as LibTorch chooses
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

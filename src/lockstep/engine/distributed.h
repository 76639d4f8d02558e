// Data-parallel training by several processes: the same model on each, every batch split between
// them, one update.
//
//   .engine = std::make_shared<ls::DistributedDataParallelEngine>(
//       ls::DistributedDataParallelOptions{.workers = 4})
//
// Workers of this host are forked from the caller, which is rank 0 itself. If torchrun, mpirun or
// srun started the program, it has the rank that the launcher gave it, and nothing is forked. To
// use several hosts without such a launcher, start the same program on each, with rank 0's address,
// a port, the total number of workers and the first rank of the host.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "lockstep/comm/world.h"
#include "lockstep/engine/engine.h"

namespace lockstep {

struct DistributedDataParallelOptions {
  std::optional<int> workers;  // on this host; default: its GPUs, else its cores
  std::optional<int> shards;   // parts of every batch, over all hosts; default: one per worker

  // Options for several hosts.
  std::string address = "127.0.0.1";  // of the host of rank 0
  std::optional<int> port;            // where rank 0 listens; the same on all hosts
  std::optional<int> world_size;      // workers on all hosts; default: `workers`
  int first_rank = 0;                 // of this host's workers
  // The run's secret, the same on all hosts. A rank proves that it knows the secret and never sends
  // it. Default: LOCKSTEP_TOKEN, or the file that LOCKSTEP_TOKEN_FILE names. A run on several hosts
  // needs a secret that cannot be guessed.
  std::string token = {};

  // auto: shared memory inside a host, gloo between hosts, nccl between GPUs if this build has it.
  // shm or gloo: only that one, and tensors on GPUs are copied to the CPU. nccl: as auto, and an
  // error if nccl cannot be used.
  std::string backend = "auto";
  // In which order nccl adds gradients. ordered: the same bits for any number of workers. fast:
  // nccl chooses it, by the number of workers and how they are connected. Sums on the CPU are
  // always ordered.
  std::string reduction = "ordered";
  bool sync_bn = false;  // batch norm over all workers' samples; needs one shard per worker

  // Default: one GPU per worker, else the CPU. cuda: one GPU per worker. cuda:N: that GPU, for one
  // worker or, under a launcher, for this process.
  std::optional<torch::Device> device;
  std::optional<int> threads;  // per worker; default: cores divided by shards
  std::optional<bool> pin;     // workers to cores; default: if their threads take all cores
  bool share_updates = true;   // each worker of one host updates its part of the parameters
  std::chrono::milliseconds timeout = std::chrono::minutes(5);  // of every wait for ranks

  // More options for several hosts.
  std::optional<std::filesystem::path> token_file = {};  // with the secret; only its owner may read
  bool allow_guessable_token = false;  // warn about a guessable token instead of refusing it
  std::string interface = {};  // this host's network interface or address; default: all of them, or
                               // LOCKSTEP_INTERFACE
  // The time limit for ranks that have not joined yet. They may be loading data before the run.
  // Default: 6 times the timeout.
  std::optional<std::chrono::milliseconds> join_timeout = {};
};

class DistributedDataParallelEngine : public Engine {
 public:
  // Throws ConfigError if the options or the environment are wrong or contradict each other.
  explicit DistributedDataParallelEngine(DistributedDataParallelOptions options = {});

  torch::Device device() const override { return device_; }
  std::int64_t workers() const override { return world_size_; }
  std::int64_t shards() const override { return shards_; }
  bool forks_workers() const override { return !place_ && local_workers_ > 1; }
  bool synchronizes_batch_norm() const override { return options_.sync_bn; }
  bool shares_updates() const override { return options_.share_updates; }
  Restarts restarts() const override { return place_ ? Restarts::kByLauncher : Restarts::kByRun; }
  void start() override;
  void run(const Job& job) override;

 private:
  void resolve();
  void run_attached(const Job& job);
  void run_forked(const Job& job);
  void run_alone(const Job& job);
  void work_as(const Topology& local, const Job& job, comm::Communicator& communicator);
  comm::WorldOptions world_options() const;

  DistributedDataParallelOptions options_;
  std::optional<process::LaunchedPlace> place_;  // given by a launcher, if there is one
  int local_workers_ = 1;
  int world_size_ = 1;
  int shards_ = 1;
  int threads_ = 1;
  int gpus_ = 0;  // how many this process can use, if it may
  torch::Device device_ = torch::kCPU;
};

}  // namespace lockstep

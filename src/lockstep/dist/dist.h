// Functions for distributed training in a user's own training loop, with or without a runner:
//
//   void main_worker(int rank, int world_size, const Arguments& args) {
//     dist::init_process_group({.rank = rank, .world_size = world_size});
//     auto sampler = dist::data_sampler(dataset);
//     auto model = dist::prepare_ddp_model(net);  // distributed_model.h
//     ...
//     loss.backward();  // averages the gradients of the model
//     optimizer.step();
//     ...
//     dist::cleanup();
//   }
//   int main() { dist::launch(main_worker, args); }
//
// The process has one group at a time, from init_process_group() to cleanup(). One thread at a time
// may use it. Without a group a process is rank 0 of 1, and collective calls change nothing. But if
// launch() or a launcher started several processes, collective calls without a group throw
// ConfigError, so that no process trains separately by mistake.
//
// "Collective" means that every rank must call the function, in the same order. Collective calls
// throw WorkerError if another rank failed, and CommError at the time limit; both name the ranks.
// No destructor here makes a collective call.
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <torch/types.h>

#include "lockstep/comm/tree.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/sampler.h"
#include "lockstep/log/console.h"
#include "lockstep/train/model.h"

namespace lockstep::dist {

using comm::ReduceOp;

struct LaunchOptions {
  std::optional<int> workers = {};  // on this host; default: its GPUs, else its cores
  std::string backend = "auto";     // of the workers' process group: auto, shm, gloo, nccl
  std::chrono::milliseconds timeout = std::chrono::minutes(5);  // of every wait for other ranks
  std::string reduction = "ordered";  // of the workers' process group; see ProcessGroupOptions
};

// Calls worker(rank, world_size) in `workers` processes and returns when all are done. This process
// is rank 0, so the effects of its worker remain; the other processes are forked. All share the
// standard output and the cores: each gets its part of LibTorch's threads.
//
// If the worker throws in this process, launch() throws the same. If another worker fails, launch()
// throws WorkerError with the rank and the reason. In both cases all workers end. If a worker does
// not call cleanup(), launch() does.
//
// If torchrun, mpirun or srun started the program, launch() calls the worker once, with the rank
// and world size that they gave this process, and ignores `workers`.
void launch(const std::function<void(int rank, int world_size)>& worker,
            const LaunchOptions& options = {});

// The same with more arguments for the worker: worker(rank, world_size, args...).
template <typename Worker, typename... Args>
requires(sizeof...(Args) > 0 &&
         std::invocable<Worker&, int, int, Args&...>) void launch(Worker&& worker, Args&&... args) {
  launch([&](int rank, int world_size) { std::invoke(worker, rank, world_size, args...); },
         LaunchOptions());
}

struct ProcessGroupOptions {
  // The rank of this process and the number of ranks. Default: what launch() or a launcher gave it.
  std::optional<int> rank = {};
  std::optional<int> world_size = {};
  // auto: shared memory inside a host, gloo between hosts, nccl between GPUs if this build has it.
  // shm or gloo: only that one, and tensors on GPUs are copied to the CPU. nccl: as auto, and an
  // error if nccl cannot be used. Default: the backend in launch()'s options.
  std::optional<std::string> backend = {};
  // Address and port of the rendezvous, for processes that no launcher started, or if launch() is
  // called on each of several hosts. Then rank and world_size must be given, too.
  std::string address = "127.0.0.1";  // of rank 0's host, as the other hosts know it
  std::optional<int> port = {};       // the same in all processes
  // The run's secret, the same in all processes; it is never sent. Default: LOCKSTEP_TOKEN, or the
  // file that LOCKSTEP_TOKEN_FILE names. A run on several hosts needs one that cannot be guessed.
  std::string token = {};
  std::optional<std::chrono::milliseconds> timeout = {};  // default: launch()'s, else 5 minutes
  std::optional<std::filesystem::path> token_file = {};   // contains the secret; needs mode 600
  // Time limit for all ranks to call init_process_group(); some may still be loading data. Default:
  // 6 times the timeout.
  std::optional<std::chrono::milliseconds> join_timeout = {};
  bool allow_guessable_token = false;  // only warn about a token that can be guessed
  std::string interface = {};  // this host's network interface or address; default: all of them, or
                               // LOCKSTEP_INTERFACE
  // In which order nccl adds. ordered: the same bits for any number of ranks. fast: nccl chooses
  // it. Sums of tensors on the CPU are always ordered. Default: the one in launch()'s options.
  std::optional<std::string> reduction = {};
};

// Collective. Throws ConfigError if the options contradict the rank and world size that launch() or
// a launcher gave this process, or do not say how to reach the other ranks. Throws CommError, with
// the address, if not all ranks call it in time.
void init_process_group(const ProcessGroupOptions& options = {});

// Collective if there is a group: waits for all ranks, then ends the group. Does nothing if there
// is no group.
void cleanup();

// Not collective: reports to the other ranks that this rank fails, and why, and gives the group up.
// launch() calls it for a worker that throws. A program that does not use launch() should call it
// where it catches an error.
void abort(std::string_view reason) noexcept;

bool is_initialized();
int get_rank();        // 0 without a group
int get_world_size();  // 1 without a group
bool is_primary();     // rank 0

// This process's GPU, chosen by its local rank; the CPU if the host has no GPU.
torch::Device get_device();

struct DataSamplerOptions {
  bool distributed = true;  // false: data_sampler() returns a null pointer
  bool shuffle = true;      // a different order in each epoch
  std::uint64_t seed = 0;   // of the order; must be the same on all ranks; the epoch is added to it
  // True: samples are repeated until all ranks have the same number, as in PyTorch, so all ranks
  // also have the same number of batches. False: no sample is repeated, and some ranks have one
  // sample less.
  bool pad = true;
};

// This rank's part of the data set, for a loader. The indices are the same as those of PyTorch's
// DistributedSampler. A null pointer if `distributed` is false. Runs that split batches between
// workers themselves (DistributedDataParallelEngine) need a data::DistributedSampler instead.
std::shared_ptr<const data::Sampler> data_sampler(const data::DatasetPtr& dataset,
                                                  const DataSamplerOptions& options = {});

// Collective. They change the tensor in place and return it. Its shape and type must be the same on
// all ranks, except for gather(). Autograd does not record them.
torch::Tensor reduce(torch::Tensor tensor, ReduceOp op = ReduceOp::kSum,
                     int root = 0);  // only `root` gets the result; other ranks' tensors stay
torch::Tensor all_reduce(torch::Tensor tensor, ReduceOp op = ReduceOp::kSum);
torch::Tensor broadcast(torch::Tensor tensor, int root = 0);

// Collective. Every rank's tensor, in the order of the ranks. Shapes may differ, types may not.
// gather() returns them on the primary, all_gather() on all ranks.
std::vector<torch::Tensor> gather(const torch::Tensor& tensor);
std::vector<torch::Tensor> all_gather(const torch::Tensor& tensor);

void barrier();
inline void wait_for_everyone() {
  barrier();
}

// Collective: all ranks get rank 0's values; of a model, also the values of its buffers.
void sync_params(const std::vector<torch::Tensor>& tensors);
void sync_params(const Model& model);

// Prints a line to standard output if this is the primary. Not collective.
template <typename... Args>
void print_primary(fmt::format_string<Args...> format, Args&&... args) {
  if (is_primary()) Console::standard().line(fmt::format(format, std::forward<Args>(args)...));
}

// Collective: the primary prints the texts of all ranks, in the order of the ranks, as one piece.
// Empty texts are left out.
void print_in_order(std::string_view text);

// A port of 127.0.0.1 that was free a moment ago. Another process may take it before it is used, so
// prefer launch(), which needs no port.
int find_free_port();

}  // namespace lockstep::dist

// Distributed training by hand, for loops of one's own; with or without a runner:
//
//   void main_worker(int rank, int world_size, const Arguments& args) {
//     dist::init_process_group({.rank = rank, .world_size = world_size});
//     auto sampler = dist::data_sampler(dataset);
//     auto model = dist::prepare_ddp_model(net);  // distributed_model.h
//     ...
//     loss.backward();
//     model.average_gradients();
//     optimizer.step();
//     ...
//     dist::cleanup();
//   }
//   int main() { dist::launch(main_worker, args); }
//
// The process has one group at a time, from init_process_group() to cleanup(). One thread at a time
// may use it. Without a group a process is rank 0 of 1, and collective calls change nothing; but
// where launch() or a launcher made it one of several, they throw ConfigError: nobody shall train
// alone by mistake.
//
// "Collective" means that every rank must call it, in the same order. Collective calls throw
// WorkerError where another rank failed, and CommError past the time limit; both name the ranks.
// Nothing here is done by a destructor that others would have to take part in.
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
  std::string backend = "auto";     // of the group that workers form: auto, shm, gloo
  std::chrono::milliseconds timeout = std::chrono::minutes(5);  // of every wait for others
};

// Calls worker(rank, world_size) in `workers` processes and returns when all are done. The others
// are forked; this one is rank 0, so what its worker leaves behind stays. They share the standard
// output, and the cores: each gets its part of LibTorch's threads.
//
// Throws what the worker threw here, and WorkerError with the rank and the reason where another one
// failed; then all end. A group that a worker leaves open is cleaned up.
//
// Where torchrun, mpirun or srun started the program, it calls the worker once, with the place they
// gave this process; `workers` does not count then.
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
  // Which place this process has. Default: the one that launch() or a launcher gave it.
  std::optional<int> rank = {};
  std::optional<int> world_size = {};
  // auto: shared memory inside a host, gloo between hosts. Or shm, gloo alone. Default:
  // what launch() was told.
  std::optional<std::string> backend = {};
  // Processes that nobody launched, or launch() on each of several hosts, meet here; rank and
  // world_size must be given then.
  std::string address = "127.0.0.1";  // of rank 0's host, as the others know it
  std::optional<int> port = {};       // the same everywhere
  // The run's secret, the same everywhere; it is proved, never sent. Default: LOCKSTEP_TOKEN, or
  // the file that LOCKSTEP_TOKEN_FILE names. Several hosts need one that cannot be guessed.
  std::string token = {};
  std::optional<std::chrono::milliseconds> timeout = {};  // default: launch()'s, else 5 minutes
  std::optional<std::filesystem::path> token_file = {};  // with the secret; only its owner may read
  // Of the wait for ranks that have not come yet, which may be loading data. Default: 6 times the
  // timeout.
  std::optional<std::chrono::milliseconds> join_timeout = {};
  bool allow_guessable_token = false;  // warn of a token that can be guessed instead of refusing it
  std::string interface = {};  // this host's network interface or address; default: all of them, or
                               // LOCKSTEP_INTERFACE
};

// Collective. Throws ConfigError where the options contradict the place this process has, or do not
// say how to find the others; CommError, with the place, where not all come in time.
void init_process_group(const ProcessGroupOptions& options = {});

// Collective where there is a group: all wait for each other, then it is gone. Nothing otherwise.
void cleanup();

// Not collective: tells the others that this rank fails, and why, and gives the group up. launch()
// does it for a worker that throws; who connects by hand calls it where an error is caught.
void abort(std::string_view reason) noexcept;

bool is_initialized();
int get_rank();        // 0 without a group
int get_world_size();  // 1 without a group
bool is_primary();     // rank 0

// This process's GPU, by its number among those of its host; the CPU where there is none.
torch::Device get_device();

struct DataSamplerOptions {
  bool distributed = true;  // false: there is no sampler
  bool shuffle = true;      // another order each epoch
  std::uint64_t seed = 0;   // of it, the same on all ranks; the epoch is added
  // Repeat samples until all ranks have equally many, as PyTorch does: so many batches, too. False:
  // no sample comes twice, and some ranks have one less.
  bool pad = true;
};

// This rank's part of the data set, for a loader: of PyTorch's DistributedSampler, to the index. A
// null pointer where it is not distributed. Runs that split batches between workers themselves
// (DistributedDataParallelEngine) take a data::DistributedSampler instead.
std::shared_ptr<const data::Sampler> data_sampler(const data::DatasetPtr& dataset,
                                                  const DataSamplerOptions& options = {});

// Collectives. In place, and the tensor itself is returned; shapes and types are the same on all
// ranks, but for gather. What they do to the data has no gradient.
torch::Tensor reduce(torch::Tensor tensor, ReduceOp op = ReduceOp::kSum,
                     int root = 0);  // the result is on `root` alone; elsewhere nothing changes
torch::Tensor all_reduce(torch::Tensor tensor, ReduceOp op = ReduceOp::kSum);
torch::Tensor broadcast(torch::Tensor tensor, int root = 0);

// Every rank's tensor, by rank, of any shape but one type: on the primary, or on all.
std::vector<torch::Tensor> gather(const torch::Tensor& tensor);
std::vector<torch::Tensor> all_gather(const torch::Tensor& tensor);

void barrier();
inline void wait_for_everyone() {
  barrier();
}

// All ranks go on with rank 0's values; of a model, those of its buffers, too.
void sync_params(const std::vector<torch::Tensor>& tensors);
void sync_params(const Model& model);

// A line of standard output, where this is the primary. Not collective.
template <typename... Args>
void print_primary(fmt::format_string<Args...> format, Args&&... args) {
  if (is_primary()) Console::standard().line(fmt::format(format, std::forward<Args>(args)...));
}

// Collective: every rank's text, rank after rank, in one piece, by the primary. Empty ones are left
// out.
void print_in_order(std::string_view text);

// A port of 127.0.0.1 that was free a moment ago. By the time it is used somebody else may have it:
// prefer launch(), which needs none.
int find_free_port();

}  // namespace lockstep::dist

// A worker's copy of the model: its parameters, the gradients of its shards, and how both stay in
// step with the other workers'.
//
// On one host the parameters, the gradients and the optimizer's state are in memory that the
// workers share: each worker sums its part of the gradients, straight from where backward() left
// them, and updates its part of the parameters. Nothing is copied or gathered. Elsewhere each
// worker has its own, gradients are reduced while backward() goes on, and every worker updates
// everything. Both give the same bits.
//
// A worker adds up the gradients of its shards as they come (comm::RunningSums), so that it needs
// memory for a few of them, not for one of each shard.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <torch/types.h>

#include "lockstep/comm/communicator.h"
#include "lockstep/engine/model_buffers.h"
#include "lockstep/log/profiler.h"
#include "lockstep/optim/flat_parameters.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/state/named_tensors.h"

namespace lockstep {

struct ReplicaOptions {
  int shards = 1;            // logical, over all workers; at least one a worker
  bool share_memory = true;  // where the workers are on one host
  bool overlap = true;       // reduce gradients while backward() goes on, where nothing is shared
  std::int64_t bucket_bytes = 8 << 20;  // of gradients that are reduced together
  // Each shard comes once before every update. Else, because gradients of several batches are added
  // up for each shard, every shard needs memory for gradients of its own.
  bool one_batch_an_update = false;
  Profiler* profiler = &Profiler::none();
};

class GradientBuckets;

class Replica {
 public:
  // Collective. All workers go on with rank 0's values. Throws CommError, naming the parameter,
  // where models differ in it.
  Replica(const NamedTensors& parameters, const NamedTensors& buffers,
          comm::Communicator& communicator, const ReplicaOptions& options);
  ~Replica();

  optim::FlatParameters& parameters() { return *parameters_; }
  const comm::LeafRange& shards() const { return range_; }  // this worker's
  bool shares_memory() const { return shared_; }
  // Gradients are reduced while backward() goes on.
  bool overlaps() const;

  // Around forward and backward of this worker's shard, counted from 0, in this order. `last` says
  // that no gradient comes after it before the update. before_backward() is called directly before
  // that. The first begin_shard() of a batch is collective where the user unfroze a parameter that
  // was frozen from the start: it is trained from this batch on.
  void begin_shard(int local, bool last);
  void before_backward();
  void end_shard(int local);

  // Before before_backward(): a shard of this worker does not weigh its number of samples. All
  // ranks learn it with the gradients, and only then exchange what shards weigh.
  void mark_weights() { parameters_->set_mark(true); }

  // What an update does to the mean gradient.
  struct Update {
    // What this worker's shards weigh, and what makes a mean of the sum over all shards, given what
    // all of them weigh, in their order; or given nothing, where no rank has called
    // mark_weights(). Where no such function is given, the sum stays as it is.
    std::span<const double> weights = {};
    std::function<double(std::span<const double>)> scale_of = {};
    std::optional<double> clip_value = {};  // of the mean's elements
    std::optional<double> clip_norm = {};   // of the mean
  };
  // Collective: sums the gradients of all shards, clips and steps; gradients are zero after it.
  // Parameters that the loss of no shard used since the last update are left alone, as in PyTorch.
  // Returns the norm of the mean gradient where it had to be known.
  std::optional<double> update(optim::Optimizer& optimizer, const Update& update);

  // Collective: the user changes the model. `change` is called once for each copy of the
  // parameters: on rank 0 alone where memory is shared. After it, all ranks have rank 0's
  // parameters, frozen ones included, and buffers.
  void change(const std::function<void()>& change);

  // Collective: after rank 0 has loaded a checkpoint. All ranks get its parameters and buffers, and
  // its values for the optimizer's tensors; what is in shared memory is there already.
  void send(const optim::Optimizer& optimizer);

  // Collective. The parameters go on in memory of this process alone.
  void finish();

 private:
  void compare_models(const NamedTensors& parameters, const NamedTensors& buffers);
  bool can_share(const NamedTensors& parameters) const;
  comm::RunningSums sums_of(int rank) const;
  std::int64_t plan_shared_sets();
  void send_weights();
  void wake_unfrozen();
  void make_buckets();
  std::int64_t set_of(int local) const;
  void add_sets(const comm::RunningSums::Addition& addition);
  void sum_gradients();
  void sum_own_part();
  void exchange_sums();
  void wait_for_all();
  std::span<double> block_norms() const;  // of all parts, where memory is shared
  void write_weights(std::span<const double> own);
  std::span<const double> gathered_weights();

  comm::Communicator& communicator_;
  ReplicaOptions options_;
  comm::LeafRange range_;
  comm::RunningSums sums_;           // of this worker's shards
  std::int64_t first_set_ = 0;       // of this worker's sets of gradients among all that it sees
  std::vector<std::int64_t> marks_;  // the sets that have a rank's marks, where memory is shared
  std::vector<std::int64_t> terms_;  // the sets that make up the sum, where memory is shared
  bool shared_ = false;
  bool finished_ = false;
  bool last_shard_ = false;  // the one at work is the last before an update
  std::unique_ptr<ModelBuffers> buffers_;
  std::unique_ptr<optim::FlatParameters> parameters_;
  std::unique_ptr<GradientBuckets> buckets_;
  std::unique_ptr<comm::Tree> tree_;  // of what is in terms_
  torch::Tensor block_norms_;         // shared, for the norm of all gradients
  torch::Tensor weights_;             // what each shard weighs, of all workers; shared likewise
};

}  // namespace lockstep

// A worker's copy of the parameters that one optimizer trains, and the gradients of its shards.
// Replica keeps them the same on all workers. Replicas (engine/replicas.h) has those of a whole
// run.
//
// On one host the parameters, the gradients and the optimizer's state are in memory that the
// workers share. Each worker sums its part of the gradients, directly from where backward() wrote
// them, and updates its part of the parameters. Nothing is copied or gathered. Otherwise
// each worker has its own memory, gradients are reduced while backward() still runs, and every
// worker updates all parameters. Both ways give the same bits.
//
// A worker adds up the gradients of its shards one after another (comm::RunningSums), so that it
// needs memory for a few sets of gradients, not for one set per shard.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
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
  int shards = 1;            // logical, over all workers; at least one per worker
  bool share_memory = true;  // if the workers are on one host
  bool overlap = true;       // reduce gradients during backward(), if no memory is shared
  std::int64_t bucket_bytes = 8 << 20;  // of gradients that are reduced together
  // Each shard is computed once before every update. Otherwise the gradients of several batches are
  // added up for each shard, so every shard needs its own memory for gradients.
  bool one_batch_per_update = false;
  // With kBf16, gradients of float32 are rounded at every node of the sum over the shards, and
  // workers that do not share memory send half the bytes.
  Wire wire = Wire::kFp32;
  Profiler* profiler = nullptr;  // measures the activities; none: nothing is measured
};

class GradientBuckets;

// The gradient of a parameter in an update. The mean over all shards of all workers is sum x scale.
struct SummedGradient {
  std::string name;   // of the parameter
  torch::Tensor sum;  // of the parameter's shape; must not be changed
  double scale = 1.0;
};
using SummedGradients = std::vector<SummedGradient>;

// Changes gradients in place.
using GradientFunction = std::function<void(std::span<const torch::Tensor> gradients)>;

class Replica {
 public:
  // Collective. All workers get rank 0's values. The parameters must have the same names, shapes
  // and types on all ranks.
  Replica(const NamedTensors& parameters, comm::Communicator& communicator,
          const ReplicaOptions& options);
  ~Replica();

  optim::FlatParameters& parameters() { return *parameters_; }
  const comm::LeafRange& shards() const { return range_; }  // of this worker
  bool shares_memory() const { return shared_; }
  // Whether gradients are reduced while backward() still runs.
  bool overlaps() const;

  // Called in this order, before and after forward and backward of this worker's shard `local`,
  // counted from 0. before_backward() is called directly before backward(). `last` says that no
  // other batch adds gradients before the update. The first begin_shard() of a batch is collective
  // if the user unfroze a parameter that was frozen from the start. The parameter is trained from
  // this batch on.
  void begin_shard(int local, bool last);
  void before_backward();
  void end_shard(int local);

  // Called before before_backward() if the weight of a shard of this worker is not its number of
  // samples. All ranks learn this together with the gradients. They exchange the weights of shards
  // only in this case.
  void mark_weights() { parameters_->set_mark(true); }

  // What an update does to the mean gradient.
  struct Update {
    // The weights of this worker's shards.
    std::span<const double> weights = {};
    // Returns the factor that turns the sum over all shards into the mean. It is called with the
    // weights of all shards, in their order, or with nothing if no rank has called mark_weights().
    // Without this function, the sum is not scaled.
    std::function<double(std::span<const double>)> scale_of = {};
    std::optional<double> clip_value = {};  // of the mean's elements
    std::optional<double> clip_norm = {};   // of the mean
    bool wants_norm = false;                // of the mean, also if nothing is clipped by it
    // The norm stays on the device of the gradients, so that the host need not wait for it. If no
    // memory is shared; all gradients must be on one device.
    bool norm_stays = false;
    // Examines the sums, and skips the update if one of them is not finite.
    bool skip_non_finite = false;
    // Gets the mean gradients of all parameters that take part in the update, in the order of the
    // replicas and their parameters. It is called once for each copy of the gradients: on rank 0
    // only if memory is shared.
    GradientFunction clip = {};
    // Gets the gradients of all parameters that take part in the update, before they are clipped by
    // norm or function. It is called on rank 0 only, but all ranks must pass it.
    std::function<void(const SummedGradients& gradients)> observe = {};
    // Buffers that all shards take from the first one, together with the gradients, so that ranks
    // that share memory need not wait for each other once more.
    ModelBuffers* buffers = nullptr;
  };
  // Collective: the first half of an update. Sums the gradients of all shards and clips their
  // values.
  struct Reduced {
    double scale = 1.0;               // turns the sum into the mean
    std::optional<double> norm = {};  // of the mean, if clip_norm or wants_norm is set
    torch::Tensor late_norm = {};     // the same, if it stays on the device
    bool finite = true;  // all sums, on all ranks; examined only if skip_non_finite is set
  };
  Reduced reduce(const optim::Optimizer& optimizer, const Update& update);
  // Collective, between the halves: what Update::observe gets of this replica. If memory is shared,
  // no rank may go on before rank 0 has read it (send_means).
  SummedGradients sums(double scale);
  // Collective, between the halves: the sums become means where this rank may change them. Returns
  // the means of the parameters that take part in the update.
  std::vector<torch::Tensor> make_means(double scale);
  // Collective: all ranks have rank 0's means. If no memory is shared, they have to be sent.
  void send_means();
  // Collective: the second half. Steps the optimizer with the sums times `scale`. Gradients are
  // zero after it. Parameters that the loss of no shard has used since the last update are not
  // changed, as in PyTorch.
  void step(optim::Optimizer& optimizer, double scale);
  // Between the halves: multiplies the sums by one number on their device. Only if the norm stayed
  // there.
  void scale_sums(const torch::Tensor& factor);
  // Collective, instead of step(): drops the gradients. Parameters and optimizers stay unchanged.
  void skip();

  bool is_primary() const { return communicator_.is_primary(); }

  // Collective. All ranks get rank 0's parameters, frozen ones included. What is in shared memory
  // need not be sent.
  void send();
  // The same for the tensors of the optimizer, after rank 0 has loaded a checkpoint.
  void send(const optim::Optimizer& optimizer);

  // Collective. Moves the parameters to memory of this process.
  void finish();

 private:
  bool can_share(const NamedTensors& parameters) const;
  comm::RunningSums sums_of(int rank) const;
  std::int64_t plan_shared_sets();
  void make_unfrozen_trainable();
  void make_buckets();
  std::int64_t set_of(int local) const;
  void add_sets(const comm::RunningSums::Addition& addition);
  void sum_gradients();
  void round_gradients();
  void sum_own_part();
  void exchange_sums();
  void wait_for_all();
  bool are_sums_finite() const;
  optim::Part own_part(const optim::Optimizer& optimizer) const;
  std::span<double> block_norms() const;  // of all parts, if memory is shared
  void write_weights(std::span<const double> own);
  std::span<const double> gathered_weights();

  comm::Communicator& communicator_;
  ReplicaOptions options_;
  comm::LeafRange range_;
  comm::RunningSums sums_;           // of this worker's shards
  std::int64_t first_set_ = 0;       // the first of this worker's sets of gradients
  std::vector<std::int64_t> marks_;  // the sets that have a rank's marks, if memory is shared
  std::vector<std::int64_t> terms_;  // the sets that make up the sum, if memory is shared
  bool shared_ = false;
  bool finished_ = false;
  bool last_shard_ = false;  // the current shard is the last before an update
  std::unique_ptr<optim::FlatParameters> parameters_;
  std::unique_ptr<GradientBuckets> buckets_;
  std::unique_ptr<comm::Tree> tree_;  // adds up the sets in terms_
  torch::Tensor block_norms_;         // shared, for the norm of all gradients
  torch::Tensor weights_;             // of the shards of all workers; shared, too, if memory is
};

// A replica and the optimizer that was made for it.
struct TrainedReplica {
  Replica& replica;
  optim::Optimizer& optimizer;
};

struct UpdateResult {
  // Of the mean gradient, if clip_norm or wants_norm is set: after clipping by value, before
  // clipping by norm or by a function.
  std::optional<double> norm = {};
  torch::Tensor late_norm = {};  // the same on the device of the gradients, if norm_stays is set
  bool skipped = false;          // because of skip_non_finite
};

// Collective. One update of several replicas, whose gradients are clipped by their common norm. If
// the update is skipped, then for all of them.
UpdateResult update(std::span<const TrainedReplica> all, const Replica::Update& update);

}  // namespace lockstep

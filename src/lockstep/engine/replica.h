// A worker's copy of the model: its parameters, the gradients of its shards, and how both stay in
// step with the other workers'.
//
// On one host the parameters, the gradients of all shards and the optimizer's state are in memory
// that the workers share: each sums its part of the gradients, straight from where backward() left
// them, and updates its part of the parameters. Nobody copies or gathers. Elsewhere each worker has
// its own, gradients are reduced while backward() goes on, and everybody updates everything. Both
// give the same bits.
#pragma once

#include <cstdint>
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

  // Around forward and backward of this worker's shard, counted from 0. `last` says that no
  // gradient comes after it before the update. before_backward() is called directly before that.
  void begin_shard(int local, bool last);
  void before_backward();
  void end_shard(int local);

  // What an update does to the mean gradient.
  struct Update {
    double scale = 1.0;                // makes a mean of the sum over shards
    std::optional<double> clip_value;  // of the mean's elements
    std::optional<double> clip_norm;   // of the mean
  };
  // Collective: sums the gradients of all shards, clips and steps; gradients are zero after it.
  // Returns the norm of the mean gradient where it had to be known.
  std::optional<double> update(optim::Optimizer& optimizer, const Update& update);

  // Collective. The sum of one number a shard, by their order, of which these are this worker's.
  double sum_over_shards(std::span<const double> own);

  // Collective. The parameters go on in memory of this process alone.
  void finish();

 private:
  void compare_models(const NamedTensors& parameters, const NamedTensors& buffers);
  bool can_share(const NamedTensors& parameters) const;
  void sum_gradients();
  void sum_own_part();
  void wait_for_all();
  std::span<double> block_norms() const;  // of all parts, where memory is shared

  comm::Communicator& communicator_;
  ReplicaOptions options_;
  comm::LeafRange range_;
  bool shared_ = false;
  bool finished_ = false;
  bool last_shard_ = false;  // the one at work is the last before an update
  std::unique_ptr<ModelBuffers> buffers_;
  std::unique_ptr<optim::FlatParameters> parameters_;
  std::unique_ptr<GradientBuckets> buckets_;
  std::unique_ptr<comm::Tree> tree_;  // over all shards, where memory is shared
  torch::Tensor block_norms_;         // shared, for the norm of all gradients
};

}  // namespace lockstep

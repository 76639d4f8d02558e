// A model's buffers (for example running statistics of batch norm) when batches are split into
// shards. Each shard has its own buffers until the next update. With every update, all shards
// continue with the buffers of the first shard, as PyTorch's DistributedDataParallel broadcasts
// those of rank 0.
//
// The values stay on the device of the buffers, so that the host need not wait for it.
#pragma once

#include <cstdint>
#include <vector>

#include <torch/types.h>

#include "lockstep/comm/communicator.h"
#include "lockstep/state/named_tensors.h"

namespace lockstep {

struct ModelBuffersOptions {
  int shards = 1;  // over all workers; with a single shard, publish() and take() do nothing
  // All ranks call Communicator::synchronize() between publish() and take(), and again between
  // take() and the next publish(). The buffers then go through shared memory, if there is any.
  // Otherwise take() broadcasts them.
  bool ranks_meet = false;
};

class ModelBuffers {
 public:
  ModelBuffers(const NamedTensors& buffers, comm::Communicator& communicator,
               const ModelBuffersOptions& options);

  // Called before and after the forward() of this worker's shard `local`, counted from 0.
  void begin_shard(int local);
  void end_shard(int local);

  // Copy the first shard's buffers to all shards. Collective. There are two halves, so that ranks
  // which share memory need no other synchronization than the one that takes place between them.
  void publish();
  void take();

  // Copies rank 0's buffers to all ranks. Collective.
  void broadcast();

  // Copies the first shard's buffers to all shards, also between two updates. It is called before
  // the user changes the buffers: the change must start from the same values on all ranks, and the
  // earlier values of a shard must not undo it. Collective.
  void settle();

 private:
  // Values of all buffers, one after another in one piece of memory.
  struct Values {
    torch::Tensor bytes;
    std::vector<torch::Tensor> views;  // one per buffer
  };
  Values values_in(const torch::Tensor& bytes) const;
  Values make_values() const;
  void restore_first();
  void copy_out(const Values& to) const;
  void copy_in(const Values& from);

  std::vector<torch::Tensor> tensors_;
  std::vector<std::int64_t> offsets_;   // of the buffers in Values::bytes
  torch::Device device_ = torch::kCPU;  // of the buffers; the CPU if they have several
  comm::Communicator& communicator_;
  int local_shards_;
  int shards_;
  std::int64_t size_ = 0;    // of all values in bytes
  Values published_;         // in shared memory, if there is any
  Values sent_;              // for broadcast(); undefined before the first one
  std::vector<Values> own_;  // one per local shard, if there are several
  bool fresh_ = true;        // own_ holds nothing yet
};

}  // namespace lockstep

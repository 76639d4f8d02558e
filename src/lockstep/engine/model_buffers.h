// A model's buffers (for example running statistics of batch norm) when batches are split into
// shards. Each shard has its own buffers until the next update. With every update, all shards
// continue with the buffers of the first shard, as PyTorch's DistributedDataParallel broadcasts
// those of rank 0.
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
  void restore_first();
  void copy_out(std::byte* bytes) const;
  void copy_in(const std::byte* bytes);

  std::vector<torch::Tensor> tensors_;
  comm::Communicator& communicator_;
  int local_shards_;
  int shards_;
  std::size_t size_ = 0;
  torch::Tensor published_;                  // in shared memory, if there is any
  std::vector<std::vector<std::byte>> own_;  // one per local shard, if there are several
  bool fresh_ = true;                        // own_ holds nothing yet
};

}  // namespace lockstep

// A model's buffers (running statistics of batch norm, say) where its batches are split into
// shards: each shard has its own while gradients are gathered, and with every update all go on with
// those of the first shard, as PyTorch's DistributedDataParallel broadcasts those of rank 0.
#pragma once

#include <cstdint>
#include <vector>

#include <torch/types.h>

#include "lockstep/comm/communicator.h"
#include "lockstep/state/named_tensors.h"

namespace lockstep {

struct ModelBuffersOptions {
  int shards = 1;  // over all workers; where there is one, nothing is ever done
  // All ranks meet (Communicator::synchronize) between publish() and take(), and again between
  // take() and the next publish(): then the buffers go through shared memory, where there is some.
  // Else take() broadcasts them.
  bool ranks_meet = false;
};

class ModelBuffers {
 public:
  ModelBuffers(const NamedTensors& buffers, comm::Communicator& communicator,
               const ModelBuffersOptions& options);

  // Around the forward of this worker's shard, counted from 0.
  void begin_shard(int local);
  void end_shard(int local);

  // The first shard's for all. Collective in two halves, so that a meeting of all ranks that takes
  // place between them anyway is enough where they share memory.
  void publish();
  void take();

  // Rank 0's for all. Collective.
  void broadcast();

  // The first shard's for all, also where an update is not due yet: for a change of the buffers by
  // the user, which must begin from the same values on all ranks and must not be undone by what a
  // shard had before. Collective.
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
  torch::Tensor published_;                  // in shared memory, where there is some
  std::vector<std::vector<std::byte>> own_;  // one a local shard, where there are several
  bool fresh_ = true;                        // own_ holds nothing yet
};

}  // namespace lockstep

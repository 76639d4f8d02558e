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

class ModelBuffers {
 public:
  // Of this worker's shards. Where there is one shard altogether, nothing is ever done.
  ModelBuffers(const NamedTensors& buffers, comm::Communicator& communicator, int shards);

  // Around the forward of this worker's shard, counted from 0.
  void begin_shard(int local);
  void end_shard(int local);

  // The first shard's for all. Collective in two halves, so that one meeting of all ranks between
  // them is enough where they share memory.
  void publish();
  void take();

  // At the start: rank 0's for all. Collective.
  void broadcast();

 private:
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

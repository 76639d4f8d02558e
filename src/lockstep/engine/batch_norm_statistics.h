// Statistics of batch norm for given weights: the means, over all batches of a pass, of the mean
// and the variance in each batch, as torch.optim.swa_utils.update_bn computes them. It works for
// every model, TorchScript ones included, because batch norm itself is replaced, not the layers.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include <torch/types.h>

#include "lockstep/comm/communicator.h"
#include "lockstep/state/named_tensors.h"

namespace lockstep {

class BatchNormStatistics {
 public:
  // `buffers` are those of the model, the same on all ranks. `shards` is the number of parts of a
  // batch, over all workers.
  BatchNormStatistics(const NamedTensors& buffers, comm::Communicator& communicator, int shards);

  // While it lives, every batch norm in training in this thread is measured. It uses the statistics
  // of its batch alone, and its running statistics have these values afterwards.
  class Scope {
   public:
    // `local` is this worker's shard, counted from 0.
    Scope(BatchNormStatistics& statistics, int local);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    BatchNormStatistics* previous_;
  };

  // That of the scope of this thread; null outside of one. For the replaced operation.
  static BatchNormStatistics* current();
  // Called by the replaced operation: the buffer has the value of one batch.
  void note(const torch::Tensor& buffer);

  // Collective. Writes the means over all batches and shards to the buffers of this rank. They have
  // the same bits on all ranks, and for any number of workers. Buffers that no batch norm has
  // changed stay as they are. Returns whether there was a batch norm.
  bool write();

 private:
  std::vector<torch::Tensor> buffers_;        // of floating point
  std::vector<std::int64_t> offsets_;         // of each buffer in a sum, and the size of a sum
  std::map<const void*, std::size_t> index_;  // of a buffer, by its tensor
  std::vector<torch::Tensor> sums_;           // one per local shard: values, then the number
  comm::Communicator& communicator_;
  int shards_;
  std::size_t local_ = 0;
};

}  // namespace lockstep

// Batch norm over the samples of all workers. It works for every model, TorchScript ones included,
// because the operation itself is replaced, not the layers.
#pragma once

#include "lockstep/comm/communicator.h"

namespace lockstep {

// Replaces LibTorch's batch norm and instance norm in this process, once. The new ones do the same
// as LibTorch's, except inside of a SyncBatchNormScope or a BatchNormStatistics::Scope.
void replace_batch_norm();

// While it lives, batch norm in training in this thread is collective over the communicator.
// Instance norm is not. Batch norm without running statistics is not either if no gradients are
// recorded, because that is evaluation. With null nothing changes.
class SyncBatchNormScope {
 public:
  explicit SyncBatchNormScope(comm::Communicator* communicator);
  ~SyncBatchNormScope();
  SyncBatchNormScope(const SyncBatchNormScope&) = delete;
  SyncBatchNormScope& operator=(const SyncBatchNormScope&) = delete;

 private:
  comm::Communicator* previous_;
};

}  // namespace lockstep

// Everything of a run's networks that is the same on all workers: a Replica for the parameters of
// each optimizer, the parameters that no optimizer has, and the buffers of all networks.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/engine/model_buffers.h"
#include "lockstep/engine/replica.h"
#include "lockstep/state/named_tensors.h"

namespace lockstep {

// The parameters of one optimizer.
struct ReplicaGroup {
  NamedTensors parameters;
  // No other group gets gradients from the same backward(). Only then they can be reduced while
  // backward() still runs: the messages of two groups would have no fixed order.
  bool own_backward = true;
};

struct ReplicaTensors {
  std::vector<ReplicaGroup> trained = {};
  NamedTensors untrained = {};  // parameters of networks without an optimizer
  NamedTensors buffers = {};    // of all networks: every forward pass may change them
};

class Replicas {
 public:
  // Collective. All workers get rank 0's values. Throws CommError, which names the parameter, if
  // the networks of two ranks differ in it.
  Replicas(const ReplicaTensors& tensors, comm::Communicator& communicator,
           const ReplicaOptions& options);

  // That of the trained group with this index.
  Replica& operator[](std::size_t group) const { return *trained_[group]; }
  ModelBuffers& buffers() { return *buffers_; }

  // Collective. Lets the user change the networks. `change` is called once for each copy of the
  // parameters: only on rank 0 if memory is shared. After it, all ranks have rank 0's parameters,
  // frozen ones included, and buffers.
  void change(const std::function<void()>& change);

  // Collective. Called after rank 0 has loaded a checkpoint. All ranks get rank 0's parameters,
  // buffers and tensors of the optimizers, which are in the order of the groups.
  void send(std::span<const std::unique_ptr<optim::Optimizer>> optimizers);

  // Collective. Moves the parameters to memory of this process.
  void finish();

 private:
  void send_weights();

  comm::Communicator& communicator_;
  std::vector<std::unique_ptr<Replica>> trained_;
  std::unique_ptr<Replica> untrained_;  // null if there is nothing to send
  std::unique_ptr<ModelBuffers> buffers_;
};

}  // namespace lockstep

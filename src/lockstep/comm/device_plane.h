// Carries tensors between the devices of the ranks, usually GPUs. It is the data plane of TwoPlanes
// (two_planes.h). comm/nccl.cpp implements it. Why and how: docs/decisions/nccl.md.
//
// The host gives work to a stream of the device, which does it in order while the host does other
// things. So a call that returns has done nothing yet: StreamPoint says how far the device is.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/comm/tree.h"

namespace lockstep::comm {

// The end of the work that a stream was given until some moment.
class StreamPoint {
 public:
  virtual ~StreamPoint() = default;

  // Whether the device has done that work. Throws if the device reports an error.
  virtual bool reached() = 0;
};

// A tensor that is sent to another rank, or received from it.
struct PeerTensor {
  int rank = 0;
  torch::Tensor tensor;  // contiguous, with at least one element
};

class DevicePlane {
 public:
  // As abort(), if that was not called.
  virtual ~DevicePlane() = default;

  // Collective. Connects the ranks, and calls PlaneStart::poll while it waits for them. It is
  // called once, before all other functions. If it throws, what it has begun stays until abort().
  virtual void connect() = 0;

  // Marks the end of all work that the calling thread has given to its current stream so far. Any
  // thread may call it, also during abort() and after it.
  virtual std::shared_ptr<StreamPoint> mark() = 0;

  // Gives `work` to the plane's own stream, which first waits for `after`. `work` calls the
  // functions below and LibTorch's functions of tensors, and all of these use that stream. It may
  // be called in another thread, also after run() has returned. So it must own what it uses. An
  // exception in it is thrown by run() or by the point's reached(). Only one thread at a time may
  // call.
  virtual std::shared_ptr<StreamPoint> run(const std::shared_ptr<StreamPoint>& after,
                                           std::function<void()> work) = 0;

  // Only inside of `work`, and collective: every rank must give the same calls to its stream, in
  // the same order. Tensors are contiguous.
  //
  // Everything is sent and received at the same time. What one rank sends to another arrives in the
  // order of the two lists.
  virtual void exchange(const std::vector<PeerTensor>& sends,
                        const std::vector<PeerTensor>& receives) = 0;
  // `all` has room for `mine` of every rank. `mine` may be its own place in `all`.
  virtual void all_gather(const torch::Tensor& mine, const torch::Tensor& all) = 0;
  virtual void broadcast(const torch::Tensor& tensor, int root) = 0;
  // In place, in an order of adding that the plane chooses. The mean is the sum.
  virtual bool can_reduce(torch::ScalarType type) const = 0;
  virtual void all_reduce(const torch::Tensor& tensor, ReduceOp op) = 0;

  // Throws if the plane has noticed an error that no call has thrown yet.
  virtual void check() = 0;

  // Ends all work that waits for other ranks. It does not need them, but it may wait for those of
  // this host to call it, too, or for a device that does not answer. So the caller tells the other
  // ranks first that this one fails, and limits the time. Only mark() may be called then.
  virtual void abort() noexcept = 0;
};

struct PlaneStart {
  int rank = 0;
  int size = 1;
  torch::Device device;  // of this rank
  std::string id;        // rank 0's, from PlaneFactory::make_id()
  // The plane calls it again and again while it waits for other ranks on the host, in the thread
  // that called it. It throws to end the wait.
  std::function<void()> poll;
};

// A kind of data plane.
class PlaneFactory {
 public:
  virtual ~PlaneFactory() = default;

  virtual std::string name() const = 0;  // "nccl"
  virtual bool takes(const torch::Device& device) const = 0;

  // A text that no other device of any host has. Throws if the device cannot be used.
  virtual std::string identity(const torch::Device& device) const = 0;

  // On rank 0 only. The other ranks find it by this text, which has any bytes.
  virtual std::string make_id() const = 0;

  // Not collective: the plane has no connection yet.
  virtual std::unique_ptr<DevicePlane> make(const PlaneStart& options) const = 0;
};

}  // namespace lockstep::comm

// Copies between the host and a device that let both go on with their work. A GPU works through
// its streams while the host does other things; it is docs/decisions/devices.md that says where a
// run still waits for it.
//
// On the CPU there is nothing to wait for, and there are no such copies: make_device_copies()
// returns null. Tests have copies of their own, which are late and can fail.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <torch/types.h>

#include "lockstep/data/batch.h"

namespace lockstep {

// A tensor on its way to the host.
class LateTensor {
 public:
  virtual ~LateTensor() = default;

  // Its values, in memory of the host. Waits until the device has computed and sent them. Throws if
  // the device reports an error, or another rank has failed. May be called again.
  virtual const torch::Tensor& get() = 0;
};

// A batch on its way to the device.
class ArrivingBatch {
 public:
  virtual ~ArrivingBatch() = default;

  // The batch on the device. The host does not wait: the work that this thread gives to its current
  // stream from now on does. Call it once.
  virtual Batch take() = 0;
};

class DeviceCopies {
 public:
  virtual ~DeviceCopies() = default;

  // Begins to copy a tensor of the device to the host, and returns. The copy has the values of the
  // moment at which the work is done that this thread has given to its current stream so far. Later
  // work does not wait for it and does not delay it. A tensor of the CPU is copied at once.
  virtual std::unique_ptr<LateTensor> read(const torch::Tensor& tensor) = 0;

  // Begins to copy a batch to the device, beside the work of all other streams, and returns. The
  // memory of the given tensors may be used again at once.
  virtual std::unique_ptr<ArrivingBatch> send(const Batch& batch) = 0;
};

// Null for the CPU. While the host waits for a tensor, it calls `check` again and again, which
// throws to end the wait.
std::unique_ptr<DeviceCopies> make_device_copies(const torch::Device& device,
                                                 std::function<void()> check);

// A metric that the device may still be computing.
struct LateMetric {
  std::string name;
  std::unique_ptr<LateTensor> value;  // one number
};

}  // namespace lockstep

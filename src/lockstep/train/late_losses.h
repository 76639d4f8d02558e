// The losses of a batch as numbers. A device sends them when its forward pass is done, so that the
// host need not wait for all the work that comes after.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <torch/types.h>

#include "lockstep/train/device_copies.h"

namespace lockstep {

class LateLosses {
 public:
  // Without copies, value_of() reads the tensor itself. They must outlive this object.
  explicit LateLosses(DeviceCopies* copies) : copies_(copies) {}

  bool has_copies() const { return copies_ != nullptr; }

  // Begins to copy a loss of one element. Does nothing for a tensor of inference mode, which
  // value_of() reads itself.
  void begin(const torch::Tensor& loss);

  // The loss as a number. Waits for its copy. If there is none, or the tensor was changed since,
  // waits for the device.
  double value_of(const torch::Tensor& loss) const;

  // Before the next batch.
  void clear() { begun_.clear(); }

 private:
  struct Begun {
    torch::Tensor loss;
    std::uint32_t version = 0;  // of the tensor when it was copied
    std::unique_ptr<LateTensor> copy;
  };

  DeviceCopies* copies_;
  std::vector<Begun> begun_;
};

}  // namespace lockstep

// LibTorch's autocast, whose functions differ between its versions: this is the only file that
// calls them.
#pragma once

#include <optional>
#include <string>

#include <torch/types.h>

#include "lockstep/base/precision.h"

namespace lockstep {

// While it lives, operations of this thread on this kind of device are computed as autocast does
// it: matrix products and convolutions in the precision's type, losses in float32. fp32 changes
// nothing; it does not end an autocast that is already on. Scopes may be nested. Throws ConfigError
// as check_precision() does.
class AutocastScope {
 public:
  AutocastScope(Precision precision, const torch::Device& device);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  struct Before {
    torch::DeviceType device;
    torch::ScalarType type;
    bool enabled;
  };
  std::optional<Before> before_;  // none: nothing was changed
};

// Throws ConfigError, which says what to do, if this LibTorch cannot compute in the precision on
// this kind of device.
void check_precision(Precision precision, const torch::Device& device);

// The tensor itself, or a float32 copy of one that has 16 bits. Gradients flow through the copy.
torch::Tensor widened(const torch::Tensor& tensor);

}  // namespace lockstep

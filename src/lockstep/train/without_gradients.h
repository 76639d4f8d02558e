// Parameters that need no gradient for some time: those of other optimizers during a phase, and
// those of networks without an optimizer during a run.
#pragma once

#include <span>
#include <vector>

#include <torch/types.h>

namespace lockstep {

// The destructor restores the parameters that required a gradient before.
class WithoutGradients {
 public:
  explicit WithoutGradients(std::span<const torch::Tensor> parameters);
  ~WithoutGradients();
  WithoutGradients(const WithoutGradients&) = delete;
  WithoutGradients& operator=(const WithoutGradients&) = delete;

 private:
  std::vector<torch::Tensor> changed_;
};

}  // namespace lockstep

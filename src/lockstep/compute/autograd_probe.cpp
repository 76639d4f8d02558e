#include "lockstep/compute/autograd_probe.h"

#include <torch/types.h>

namespace lockstep::compute {

bool autograd_works() {
  try {
    const torch::Tensor x = torch::ones({1}, torch::requires_grad());
    (x * x).sum().backward();
    return x.grad().item<float>() == 2.0F;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace lockstep::compute

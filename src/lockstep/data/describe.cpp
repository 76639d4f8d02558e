#include "lockstep/data/describe.h"

#include <fmt/ranges.h>

namespace lockstep::data {

std::string describe(const torch::Tensor& tensor) {
  return fmt::format("{} [{}]", c10::toString(tensor.scalar_type()),
                     fmt::join(tensor.sizes(), ", "));
}

}  // namespace lockstep::data

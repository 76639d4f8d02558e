#include "lockstep/recipe/noise.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/types.h>

#include "lockstep/base/error.h"
#include "lockstep/data/tensor_dataset.h"

namespace lockstep::recipe {

data::DatasetPtr noise(const NoiseOptions& options) {
  if (options.samples <= 0) {
    throw ConfigError("samples: expected a positive integer, got {}", options.samples);
  }
  std::vector<std::int64_t> shape = {options.samples};
  for (const std::int64_t size : options.shape) {
    if (size <= 0) throw ConfigError("shape: expected positive integers, got {}", size);
    shape.push_back(size);
  }
  auto generator = at::detail::createCPUGenerator(options.seed);
  const torch::Tensor features = torch::randn(shape, generator);
  if (!options.classes)
    return data::tensor_dataset({{"features", features}, {"targets", features.flatten(1)}});
  if (*options.classes <= 0) {
    throw ConfigError("classes: expected a positive integer, got {}", *options.classes);
  }
  const torch::Tensor targets =
      torch::randint(*options.classes, {options.samples}, generator, torch::kInt64);
  return data::tensor_dataset({{"features", features}, {"targets", targets}});
}

}  // namespace lockstep::recipe

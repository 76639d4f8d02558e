// Random data, to try out a model and a config before there is real data.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep::recipe {

struct NoiseOptions {
  std::int64_t samples = 1024;
  std::vector<std::int64_t> shape = {};  // of a sample's features
  // With it, targets are random classes. Without it, they are the features, flat.
  std::optional<std::int64_t> classes = {};
  std::uint64_t seed = 0;
};

// Throws ConfigError if a size is not positive.
data::DatasetPtr noise(const NoiseOptions& options);

}  // namespace lockstep::recipe

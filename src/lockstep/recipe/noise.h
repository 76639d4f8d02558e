// Data made up, to try a model and a config out before there is real data.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep::recipe {

struct NoiseOptions {
  std::int64_t samples = 1024;
  std::vector<std::int64_t> shape = {};      // of a sample's features
  std::optional<std::int64_t> classes = {};  // targets are random classes; else the features, flat
  std::uint64_t seed = 0;
};

// Throws ConfigError where a size is not positive.
data::DatasetPtr noise(const NoiseOptions& options);

}  // namespace lockstep::recipe

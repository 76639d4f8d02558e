// The class or the length of every sample, for samplers that choose by it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep::data {

// The class of each sample: one integer under `key`. Reads every sample once, unless the data set
// knows the column (Dataset::column). Throws DataError, which names the sample, if a sample has no
// integer there.
std::vector<std::int64_t> labels_of(const Dataset& dataset, const std::string& key = "targets");

// The length of each sample: the first dimension of the tensor under `key`. Reads every sample
// once. Throws DataError, which names the sample, if its tensor has no dimension.
std::vector<std::int64_t> lengths_of(const Dataset& dataset, const std::string& key = "features");

}  // namespace lockstep::data

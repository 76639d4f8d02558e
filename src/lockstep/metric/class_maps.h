// Reads outputs and targets as classes, or as 0 and 1 for each class, at every position of a
// sample. A sample without further dimensions has one position.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <torch/types.h>

#include "lockstep/metric/class_counts.h"
#include "lockstep/metric/scores.h"

namespace lockstep::metric {

// How outputs and targets are read. C is num_classes, and … stands for any further dimensions, such
// as H, W or D, H, W.
//
// Without `limit`, each position has one class:
//   outputs   scores [N, C, …], of which the highest counts, the first one of equals; or integers
//             [N, …], which are classes already
//   targets   classes [N, …] or [N, 1, …]; or [N, C, …] with one 1 at each position and 0 elsewhere
//
// With `limit`, each class is there or not, independently of the others:
//   outputs   scores [N, C, …]; for one class also [N, …]. A class is predicted where its score is
//             above the limit.
//   targets   0 and 1 [N, C, …]; for one class also [N, …]; for several classes also classes [N, …]
struct MapFormat {
  std::int64_t num_classes = 0;
  std::optional<double> limit = std::nullopt;
  std::optional<std::int64_t> ignore_index = std::nullopt;  // a target that does not count
  std::string metric = "";                                  // its name, for messages
};

// With MapFormat::limit: uint8 [N, C, …] of 0 and 1; a target that does not count is
// ClassCounts::kIgnored.
struct FlagMaps {
  torch::Tensor predicted;
  torch::Tensor expected;
};
FlagMaps read_flags(const torch::Tensor& outputs, const torch::Tensor& targets,
                    const MapFormat& format);

// Adds all positions of a batch. Throws DataError for shapes or values that do not fit.
void count_maps(ClassCounts& counts, const torch::Tensor& outputs, const torch::Tensor& targets,
                const MapFormat& format);

}  // namespace lockstep::metric

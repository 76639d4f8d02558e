// The check before a file is kept: what was written computes the same as the model.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include <torch/types.h>

#include "lockstep/data/batch.h"
#include "lockstep/train/model.h"

namespace lockstep::exporting {

// The size of one dimension: a number, or a name if it depends on the size of the batch. Sizes with
// the same name are equal; "batch" is the size of the batch itself.
using PortSize = std::variant<std::int64_t, std::string>;
inline constexpr const char* kBatchSize = "batch";

// One input or output of an exported model.
struct Port {
  std::string name;
  torch::ScalarType type = torch::kFloat32;
  std::vector<PortSize> sizes;
};

// The name of a size that is not that of the batch but depends on it, for example twice that size.
// Each dimension of each port has its own: "logits_dim_0".
std::string other_size_name(const std::string& port, std::size_t dimension);

// Describes the exported file to the user.
struct Exported {
  std::vector<Port> inputs;
  std::vector<Port> outputs;
  std::vector<std::int64_t> checked_sizes;  // sizes of batches whose outputs were compared
  double largest_error = 0;                 // of all outputs, relative to the largest value of each
  std::size_t bytes = 0;                    // of the file
};

// "features Float [batch, 1, 28, 28]"
std::string describe(const Port& port);

struct ComparisonOptions {
  std::string file;           // for messages
  bool dynamic_batch = true;  // compares two other sizes of a batch than those that were traced;
                              // else the example's own
  double tolerance = 1e-5;    // largest difference, relative to the largest value of an output
  std::vector<std::string> output_names = {};  // as in TraceOptions
};

// Computes the outputs of a file, in the order of the model's outputs.
using RunFile = std::function<std::vector<torch::Tensor>(const Batch& inputs)>;

// Runs model and file and compares their outputs, also for inputs with other values than the
// example's, unless the model refuses these. Throws ConfigError, which names the output and the
// difference, if they are not the same within the tolerance. NaN and infinity must be at the same
// places; integers must be equal.
Exported compare_outputs(const Model& model, const Batch& example, const RunFile& run,
                         const ComparisonOptions& options);

}  // namespace lockstep::exporting

// A model in ONNX's terms, and the bytes of a .onnx file. Field numbers are those of onnx.proto.
// Only the parts that Lockstep writes are here: no subgraphs, functions or external data.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <torch/types.h>

#include "lockstep/exporting/comparison.h"

namespace lockstep::exporting {

using OnnxAttribute = std::variant<std::int64_t, double, std::string, std::vector<std::int64_t>,
                                   std::vector<double>, torch::Tensor>;
using OnnxAttributes = std::map<std::string, OnnxAttribute>;

struct OnnxNode {
  std::string op;                   // its type: "Conv"
  std::string name = {};            // unique in the graph
  std::vector<std::string> inputs;  // "" for an optional input that is left out
  std::vector<std::string> outputs;
  OnnxAttributes attributes = {};
};

struct OnnxModel {
  std::int64_t opset = 0;
  std::string name = "lockstep";  // of the graph
  std::vector<OnnxNode> nodes;    // each after those whose outputs it uses
  std::vector<std::pair<std::string, torch::Tensor>> initializers;
  std::vector<Port> inputs;
  std::vector<Port> outputs;
};

// The operator sets that can be written.
inline constexpr std::int64_t kOldestOpset = 13, kNewestOpset = 21, kDefaultOpset = 17;

// The number of a type in ONNX. Throws ConfigError for types that it does not have.
std::int64_t onnx_type(torch::ScalarType type);

// Throws ConfigError if the file would have 2 GiB or more, which protobuf cannot read.
std::string encode(const OnnxModel& model);

// Throws DataError if the bytes are damaged or have parts that are not known here.
OnnxModel decode(std::string_view bytes);

}  // namespace lockstep::exporting

#include "lockstep/exporting/onnx.h"

#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/exporting/example.h"
#include "lockstep/exporting/onnx_evaluator.h"
#include "lockstep/exporting/onnx_model.h"
#include "lockstep/exporting/onnx_translation.h"
#include "lockstep/exporting/trace.h"

namespace lockstep::exporting {
namespace {

void check_opset(std::int64_t opset) {
  if (opset >= kOldestOpset && opset <= kNewestOpset) return;
  throw ConfigError("export: opset: expected {} to {}, got {}", kOldestOpset, kNewestOpset, opset);
}

// A weight, an input and an output are values of one graph, and so are Lockstep's own names.
void check_names(const Model& model, const Trace& traced) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : model.weights()) names.insert(name);
  for (const auto* const list : {&traced.inputs, &traced.outputs}) {
    for (const std::string& name : *list) {
      if (name.empty() || !names.insert(name).second) {
        throw ConfigError(
            "export: ONNX: the name '{}' is used twice, or empty; weights, inputs and outputs of a "
            "file must have different names",
            name);
      }
    }
  }
}

}  // namespace

Exported to_onnx(const Model& model, const Batch& inputs, const std::filesystem::path& path,
                 const OnnxOptions& options) {
  check_opset(options.opset);
  check_example(inputs);
  check_on_cpu(model, inputs);
  const Trace traced = trace(model, inputs,
                             {.dynamic_batch = options.dynamic_batch,
                              .out_of_place = true,
                              .output_names = options.output_names});
  check_names(model, traced);
  const std::string bytes = encode(Translation(traced, options.opset).run());
  const OnnxModel loaded = decode(bytes);
  const auto run = [&](const Batch& given) { return evaluate(loaded, given); };
  Exported exported = compare_outputs(model, inputs, run,
                                      {.file = path.string(),
                                       .dynamic_batch = options.dynamic_batch,
                                       .tolerance = options.tolerance,
                                       .output_names = options.output_names});
  write_file_atomically(path, bytes);
  exported.bytes = bytes.size();
  return exported;
}

}  // namespace lockstep::exporting

#include "lockstep/exporting/torchscript.h"

#include <sstream>
#include <utility>

#include <torch/csrc/jit/passes/shape_analysis.h>
#include <torch/csrc/jit/serialization/import.h>

#include "lockstep/base/file.h"
#include "lockstep/exporting/example.h"
#include "lockstep/exporting/trace.h"

namespace lockstep::exporting {
namespace {

namespace jit = torch::jit;

jit::Module scripted(const Model& model, const Batch& inputs, const TorchScriptOptions& options) {
  if (const jit::Module* const own = model.script_module()) return *own;
  const Trace traced = trace(model, inputs, {.dynamic_batch = options.dynamic_batch});
  jit::Module module = traced.weights;
  jit::EraseShapeInformation(traced.graph);
  const c10::QualifiedName name(*module.type()->name(), "forward");
  module.type()->addMethod(
      module._ivalue()->compilation_unit()->create_function(name, traced.graph));
  return module;
}

}  // namespace

Exported to_torchscript(const Model& model, const Batch& inputs, const std::filesystem::path& path,
                        const TorchScriptOptions& options) {
  check_example(inputs);
  check_on_cpu(model, inputs);
  std::string bytes;
  {
    const EvaluationMode mode(model);
    std::ostringstream stream;
    scripted(model, inputs, options).save(stream);
    bytes = std::move(stream).str();
  }
  const Model loaded = Model::script(std::istringstream(bytes), path.string());
  loaded.train(false);
  const auto run = [&](const Batch& given) { return call(loaded, given).tensors; };
  Exported exported = compare_outputs(model, inputs, run,
                                      {.file = path.string(),
                                       .dynamic_batch = options.dynamic_batch,
                                       .tolerance = options.tolerance});
  write_file_atomically(path, bytes);
  exported.bytes = bytes.size();
  return exported;
}

}  // namespace lockstep::exporting

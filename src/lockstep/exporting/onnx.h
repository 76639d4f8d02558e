// Writes a model as ONNX, for onnxruntime, OpenVINO, TensorRT and others.
//
//   ls::exporting::to_onnx(model, {{"features", images}}, "model.onnx", {.opset = 17});
//
// docs/guide/export.md lists the operators that can be translated.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/data/batch.h"
#include "lockstep/exporting/comparison.h"
#include "lockstep/train/model.h"

namespace lockstep::exporting {

struct OnnxOptions {
  std::int64_t opset = 17;    // ONNX's operator set: 13 to 21
  bool dynamic_batch = true;  // the file takes batches of any size; else only that of the example
  double tolerance = 1e-5;    // largest difference from the model, relative to the largest value
  // Names of the outputs. Default: those of the batch that the model returns, else "output", or
  // "output_0", "output_1" and so on.
  std::vector<std::string> output_names = {};
};

// Writes what the model computes in evaluation mode. `inputs` is an example: named tensors, in the
// order in which forward takes them; the names are those of the inputs in the file. Weights keep
// their names where they are used as they are.
//
// The file is kept only if Lockstep's own evaluator of ONNX, which reads it back, computes the same
// as the model. Throws ConfigError if an operation has no translation, and names it and its layer,
// or if the outputs differ.
Exported to_onnx(const Model& model, const Batch& inputs, const std::filesystem::path& path,
                 const OnnxOptions& options = {});

}  // namespace lockstep::exporting

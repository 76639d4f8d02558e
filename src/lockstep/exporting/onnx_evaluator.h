// Computes an ONNX model with ATen, as ONNX's specification of the operators says. It is the judge
// before a file is kept, so it shares no code with the translators, and knows only the operators
// that they write. It is not made for speed.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/data/batch.h"
#include "lockstep/exporting/onnx_model.h"

namespace lockstep::exporting {

// One node, while it is computed. Inputs that are left out are undefined tensors.
struct OnnxOperation {
  const OnnxNode& node;
  std::vector<torch::Tensor> inputs;
  std::int64_t opset = 0;

  bool has(std::size_t input) const { return input < inputs.size() && inputs[input].defined(); }
  const torch::Tensor& operator[](std::size_t input) const;  // throws DataError if it is missing
  // The integers of an input.
  std::vector<std::int64_t> integers(std::size_t input) const;

  // Attributes, or the value that the specification says for one that is missing.
  std::int64_t attribute(const char* name, std::int64_t otherwise) const;
  double attribute(const char* name, double otherwise) const;
  std::string attribute(const char* name, const std::string& otherwise) const;
  std::vector<std::int64_t> attribute(const char* name,
                                      const std::vector<std::int64_t>& otherwise) const;
};

using OnnxKernel = std::function<std::vector<torch::Tensor>(const OnnxOperation&)>;
using OnnxKernels = std::map<std::string, OnnxKernel, std::less<>>;

// Each adds the operators of one family, by their names ("Conv").
void add_number_kernels(OnnxKernels& kernels);
void add_shape_kernels(OnnxKernels& kernels);
void add_layer_kernels(OnnxKernels& kernels);
const OnnxKernels& onnx_kernels();

// The outputs, in the order of the model. Throws DataError if an input is missing, if its shape or
// type is not the one that the model says, or if an operator is not known.
std::vector<torch::Tensor> evaluate(const OnnxModel& model, const Batch& inputs);

}  // namespace lockstep::exporting

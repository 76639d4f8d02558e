#include "lockstep/exporting/onnx_evaluator.h"

#include <unordered_map>

#include "lockstep/base/error.h"
#include "lockstep/data/describe.h"

namespace lockstep::exporting {
namespace {

template <typename T>
T attribute_of(const OnnxNode& node, const char* name, const T& otherwise) {
  const auto found = node.attributes.find(name);
  if (found == node.attributes.end()) return otherwise;
  const T* const value = std::get_if<T>(&found->second);
  if (value == nullptr) {
    throw DataError("ONNX: {}: attribute '{}' is of another type", node.name, name);
  }
  return *value;
}

void check_input(const Port& port, const torch::Tensor& tensor) {
  bool fits = tensor.scalar_type() == port.type &&
              tensor.dim() == static_cast<std::int64_t>(port.sizes.size());
  for (std::size_t d = 0; fits && d < port.sizes.size(); ++d) {
    const auto* const size = std::get_if<std::int64_t>(&port.sizes[d]);
    fits = size == nullptr || *size == tensor.size(static_cast<std::int64_t>(d));
  }
  if (!fits) {
    throw DataError("ONNX: expected the input {}, got {}", describe(port), data::describe(tensor));
  }
}

}  // namespace

const torch::Tensor& OnnxOperation::operator[](std::size_t input) const {
  if (has(input)) return inputs[input];
  throw DataError("ONNX: {}: input {} is missing", node.name, input);
}

std::vector<std::int64_t> OnnxOperation::integers(std::size_t input) const {
  const torch::Tensor own = (*this)[input].to(torch::kInt64).contiguous();
  const auto* const numbers = own.data_ptr<std::int64_t>();
  return {numbers, numbers + own.numel()};
}

std::int64_t OnnxOperation::attribute(const char* name, std::int64_t otherwise) const {
  return attribute_of(node, name, otherwise);
}

double OnnxOperation::attribute(const char* name, double otherwise) const {
  return attribute_of(node, name, otherwise);
}

std::string OnnxOperation::attribute(const char* name, const std::string& otherwise) const {
  return attribute_of(node, name, otherwise);
}

std::vector<std::int64_t> OnnxOperation::attribute(
    const char* name, const std::vector<std::int64_t>& otherwise) const {
  return attribute_of(node, name, otherwise);
}

const OnnxKernels& onnx_kernels() {
  static const OnnxKernels all = [] {
    OnnxKernels made;
    add_number_kernels(made);
    add_shape_kernels(made);
    add_layer_kernels(made);
    return made;
  }();
  return all;
}

std::vector<torch::Tensor> evaluate(const OnnxModel& model, const Batch& inputs) {
  const torch::NoGradGuard no_grad;
  std::unordered_map<std::string, torch::Tensor> values;
  for (const auto& [name, tensor] : model.initializers) values.emplace(name, tensor);
  for (const Port& port : model.inputs) {
    const torch::Tensor* const tensor = inputs.find(port.name);
    if (tensor == nullptr) throw DataError("ONNX: the input '{}' is missing", port.name);
    check_input(port, *tensor);
    values.emplace(port.name, *tensor);
  }
  const auto value = [&](const std::string& name) {
    const auto found = values.find(name);
    if (found == values.end()) throw DataError("ONNX: nothing computes '{}'", name);
    return found->second;
  };
  for (const OnnxNode& node : model.nodes) {
    const auto kernel = onnx_kernels().find(node.op);
    if (kernel == onnx_kernels().end()) throw DataError("ONNX: unknown operator '{}'", node.op);
    OnnxOperation operation{.node = node, .inputs = {}, .opset = model.opset};
    for (const std::string& name : node.inputs) {
      operation.inputs.push_back(name.empty() ? torch::Tensor() : value(name));
    }
    const auto outputs = kernel->second(operation);
    for (std::size_t i = 0; i < node.outputs.size(); ++i) values[node.outputs[i]] = outputs.at(i);
  }
  std::vector<torch::Tensor> results;
  for (const Port& port : model.outputs) results.push_back(value(port.name));
  return results;
}

}  // namespace lockstep::exporting

// Models and checks that several tests of this module use.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/exporting/onnx.h"
#include "lockstep/exporting/onnx_evaluator.h"
#include "lockstep/exporting/torchscript.h"

namespace lockstep::exporting::testing {

// A model of one function, for operations that no layer has.
struct FunctionImpl : torch::nn::Module {
  using Function = std::function<torch::Tensor(const torch::Tensor&)>;
  explicit FunctionImpl(Function given) : function(std::move(given)) {}
  torch::Tensor forward(const torch::Tensor& x) { return function(x); }
  Function function;
};
TORCH_MODULE(Function);

// The message of the ConfigError that `run` throws.
template <typename F>
std::string error_of(F&& run) {
  try {
    run();
  } catch (const ConfigError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no ConfigError";
  return "";
}

// Writes both formats, which checks that they compute what the model does.
inline void export_both(const Model& model, const Batch& inputs, const OnnxOptions& options = {}) {
  const TemporaryDirectory folder;
  const Exported script = to_torchscript(model, inputs, folder / "model.pt");
  EXPECT_LE(script.largest_error, 1e-5);
  const Exported onnx = to_onnx(model, inputs, folder / "model.onnx", options);
  EXPECT_LE(onnx.largest_error, 1e-5);
  EXPECT_TRUE(std::filesystem::exists(folder / "model.onnx"));
}

// Exports a function as ONNX, which checks its outputs against those of LibTorch, for two sizes of
// a batch.
inline void expect_translated(const FunctionImpl::Function& function, const torch::Tensor& input) {
  const TemporaryDirectory folder;
  EXPECT_NO_THROW(to_onnx(Model(Function(function)), {{"x", input}}, folder / "model.onnx"));
}

// The computation of one node of ONNX.
inline std::vector<torch::Tensor> run_node(const std::string& op,
                                           const std::vector<torch::Tensor>& inputs,
                                           const OnnxAttributes& attributes = {},
                                           std::size_t outputs = 1) {
  OnnxModel model{.opset = 17};
  OnnxNode node{.op = op, .name = "node", .inputs = {}, .outputs = {}, .attributes = attributes};
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    node.inputs.push_back(inputs[i].defined() ? "in" + std::to_string(i) : "");
    if (inputs[i].defined()) model.initializers.emplace_back(node.inputs.back(), inputs[i]);
  }
  for (std::size_t i = 0; i < outputs; ++i) {
    node.outputs.push_back("out" + std::to_string(i));
    model.outputs.push_back({.name = node.outputs.back()});
  }
  model.nodes.push_back(node);
  return evaluate(decode(encode(model)), {});
}

inline torch::Tensor run_one(const std::string& op, const std::vector<torch::Tensor>& inputs,
                             const OnnxAttributes& attributes = {}) {
  return run_node(op, inputs, attributes).front();
}

inline void expect_close(const torch::Tensor& found, const torch::Tensor& expected) {
  EXPECT_TRUE(torch::allclose(found, expected, 1e-5, 1e-6)) << found << expected;
}

inline void expect_equal(const torch::Tensor& found, const torch::Tensor& expected) {
  EXPECT_TRUE(torch::equal(found, expected)) << found << expected;
}

inline torch::Tensor integers(const std::vector<std::int64_t>& numbers) {
  return torch::tensor(numbers, torch::kInt64);
}

}  // namespace lockstep::exporting::testing

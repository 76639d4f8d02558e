// A metric from a function, over each loader.
//
//   ls::BatchFunctionCallback({.name = "error", .function = [](const torch::Tensor& outputs,
//                                                              const torch::Tensor& targets) {
//     return (outputs - targets).abs().mean(1);
//   }})
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "lockstep/callback/classification.h"

namespace lockstep {

struct BatchFunctionCallbackOptions {
  std::string input_key = "logits";    // the model's outputs in the batch
  std::string target_key = "targets";  // the expected outputs
  std::string name = "";               // of the metric; required
  // Returns one value per sample, [N] or [N, 1], or one number, which is a mean over the samples.
  // Required.
  std::function<torch::Tensor(const torch::Tensor& outputs, const torch::Tensor& targets)>
      function = {};
  std::optional<Better> better = std::nullopt;  // which of two values is better, if it is known
};

// `name`: the mean over all samples of the loader. `name/std`: the deviation of the batches.
class BatchFunctionCallback : public MetricCallback {
 public:
  explicit BatchFunctionCallback(BatchFunctionCallbackOptions options);
  // Does not call the function, which may have captured anything.
  void dry_run(const std::string& loader, Batch& batch) override;

 private:
  std::string input_key_, target_key_;
};

struct LoaderFunctionCallbackOptions {
  std::string input_key = "logits";    // the model's outputs in the batch
  std::string target_key = "targets";  // the expected outputs
  std::string name = "";               // of the metric; required
  // Gets all outputs and all targets of the loader on the CPU, one row per sample. Required.
  std::function<double(const torch::Tensor& outputs, const torch::Tensor& targets)> function = {};
  std::optional<Better> better = std::nullopt;  // which of two values is better, if it is known
};

// `name`: the function of all samples of the loader, in an order that does not depend on the number
// of workers. All outputs and targets are kept in memory until then.
class LoaderFunctionCallback : public MetricCallback {
 public:
  explicit LoaderFunctionCallback(LoaderFunctionCallbackOptions options);
};

}  // namespace lockstep

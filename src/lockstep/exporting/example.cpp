#include "lockstep/exporting/example.h"

#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/describe.h"

namespace lockstep::exporting {
namespace {

std::vector<torch::Tensor> tensors_of(const Batch& inputs) {
  std::vector<torch::Tensor> tensors;
  for (const auto& [key, tensor] : inputs) tensors.push_back(tensor);
  return tensors;
}

// An error of LibTorch says nothing about the inputs.
Outputs outputs_of(const Model& model, const Batch& inputs) {
  try {
    return model.takes_batch() ? model.outputs(inputs) : model.outputs(tensors_of(inputs));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    std::vector<std::string> given;
    for (const auto& [key, tensor] : inputs) given.push_back(key + " " + data::describe(tensor));
    throw ConfigError("export: the model does not take the inputs {}: {}", join(given, ", "),
                      message_of(error));
  }
}

NamedOutputs named(const Batch& outputs) {
  if (!outputs.lists().empty() || !outputs.nested_batches().empty()) {
    throw ConfigError(
        "export: the model returns a batch with lists or nested batches; expected tensors only, "
        "because a file of a model has no other outputs");
  }
  NamedOutputs result;
  for (const auto& [key, tensor] : outputs) {
    result.names.push_back(key);
    result.tensors.push_back(tensor);
  }
  return result;
}

void check_device(const std::string& name, const torch::Tensor& tensor) {
  if (tensor.device().is_cpu()) return;
  throw ConfigError("export: '{}' is on {}, expected the CPU; call model.to(torch::kCPU) first",
                    name, tensor.device().str());
}

bool is_batched(const torch::Tensor& tensor, std::int64_t samples) {
  return tensor.dim() > 0 && tensor.size(0) == samples && samples > 0;
}

// About as large as before, so that rounding errors are, too. A sum has the other sign, in most
// cases. Zeros become other numbers.
torch::Tensor with_other_numbers(const torch::Tensor& tensor) {
  constexpr double kScale = -0.75, kWave = 0.2;
  const torch::Tensor own = tensor.to(torch::kFloat64);
  const double largest = own.nan_to_num(0.0, 0.0, 0.0).abs().max().item<double>();
  const torch::Tensor wave = torch::arange(own.numel(), torch::kFloat64).cos().view(own.sizes());
  return (own * kScale + wave * (kWave * (largest > 0 ? largest : 1))).to(tensor.scalar_type());
}

// Some values of a row twice and others not at all, so that also their sum and maximum may change.
torch::Tensor with_other_positions(const torch::Tensor& tensor) {
  const std::int64_t count = tensor.size(-1);
  const torch::Tensor halves = torch::div(torch::arange(count, torch::kInt64), 2, "floor");
  return tensor.index_select(-1, (halves + 1).remainder(count));
}

}  // namespace

Batch with_batch_size(const Batch& inputs, std::int64_t samples) {
  const std::int64_t have = inputs.size();
  Batch result;
  for (const auto& [key, tensor] : inputs) {
    const torch::Tensor rows = torch::arange(samples, torch::kInt64).remainder(have > 0 ? have : 1);
    result.set(key, is_batched(tensor, have) ? tensor.index_select(0, rows) : tensor);
  }
  return result;
}

Batch with_other_values(const Batch& inputs, const OtherValuesOptions& options) {
  Batch result;
  for (const auto& [key, tensor] : inputs) {
    const bool has_rows = is_batched(tensor, inputs.size());
    torch::Tensor changed = has_rows ? tensor.roll({1}, {0}) : tensor;
    if (tensor.is_floating_point() && tensor.numel() > 0) {
      changed = with_other_numbers(changed);
    } else if (c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/false) && has_rows &&
               tensor.dim() > 1 && tensor.numel() > 0 && options.positions) {
      changed = with_other_positions(changed);
    }
    result.set(key, changed);
  }
  return result;
}

NamedOutputs call(const Model& model, const Batch& inputs, const std::vector<std::string>& names) {
  const Outputs outputs = outputs_of(model, inputs);
  if (outputs.is_named()) return named(outputs.to_batch(names));
  NamedOutputs result;
  for (std::size_t i = 0; i < outputs.count(); ++i) {
    result.tensors.push_back(outputs[i]);
    result.names.push_back(outputs.count() == 1 ? "output" : fmt::format("output_{}", i));
  }
  if (!names.empty()) {
    if (names.size() != result.names.size()) {
      throw ConfigError("export: expected {} names of outputs, got {}", result.names.size(),
                        names.size());
    }
    result.names = names;
  }
  return result;
}

void check_example(const Batch& inputs) {
  if (!inputs.lists().empty() || !inputs.nested_batches().empty()) {
    throw ConfigError("export: expected inputs that are tensors, got a list or a nested batch");
  }
  if (inputs.begin() == inputs.end()) throw ConfigError("export: expected an input, got none");
  for (const auto& [key, tensor] : inputs) {
    if (!tensor.defined()) throw ConfigError("export: input '{}' is an undefined tensor", key);
  }
  if (inputs.size() == 0) {
    throw ConfigError("export: input '{}': expected at least one sample, got {}",
                      inputs.begin()->first, data::describe(inputs.begin()->second));
  }
}

void check_on_cpu(const Model& model, const Batch& inputs) {
  for (const auto& [key, tensor] : inputs) check_device(key, tensor);
  for (const auto& [name, tensor] : model.weights()) check_device(name, tensor);
}

EvaluationMode::EvaluationMode(Model model) : model_(std::move(model)), modes_(model_.modes()) {
  model_.train(false);
}

EvaluationMode::~EvaluationMode() {
  model_.set_modes(modes_);
}

}  // namespace lockstep::exporting

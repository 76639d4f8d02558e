#include "lockstep/exporting/comparison.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/describe.h"
#include "lockstep/exporting/example.h"

namespace lockstep::exporting {
namespace {

// Sizes of batches that are not traced. A model that normalises over the batch may refuse a single
// sample; then the first one is replaced.
constexpr std::int64_t kOneSample = 1, kFewSamples = 4, kMoreSamples = 5;

struct Difference {
  double error = 0;  // relative to the largest value
  std::optional<std::string> reason = {};
};

Difference difference(const torch::Tensor& expected, const torch::Tensor& found) {
  if (expected.sizes() != found.sizes() || expected.scalar_type() != found.scalar_type()) {
    return {.reason = fmt::format("expected {}, got {}", data::describe(expected),
                                  data::describe(found))};
  }
  if (expected.numel() == 0) return {};
  if (!expected.is_floating_point()) {
    if (torch::equal(expected, found)) return {};
    return {.reason = "some of its integers differ"};
  }
  const torch::Tensor own = expected.to(torch::kFloat64), other = found.to(torch::kFloat64);
  const torch::Tensor finite = own.isfinite();
  const torch::Tensor same = (own == other).logical_or(own.isnan().logical_and(other.isnan()));
  if (!same.logical_or(finite.logical_and(other.isfinite())).all().item<bool>()) {
    return {.reason = "NaN or infinity are not at the same places"};
  }
  const torch::Tensor zero = torch::zeros({}, torch::kFloat64);
  const double largest = torch::where(finite, own.abs(), zero).max().item<double>();
  const double error = torch::where(finite, (own - other).abs(), zero).max().item<double>();
  if (error == 0) return {};
  return {.error = largest > 0 ? error / largest : error};
}

Port port_of(const std::string& name, const torch::Tensor& tensor) {
  return {.name = name,
          .type = tensor.scalar_type(),
          .sizes = {tensor.sizes().begin(), tensor.sizes().end()}};
}

// The dimensions that differ between two sizes of a batch are those of the batch.
std::vector<Port> ports_of(const std::vector<std::string>& names,
                           const std::vector<torch::Tensor>& first,
                           const std::vector<torch::Tensor>& last) {
  std::vector<Port> ports;
  for (std::size_t i = 0; i < names.size(); ++i) {
    Port port = port_of(names[i], first[i]);
    for (std::int64_t d = 0; d < std::min(first[i].dim(), last[i].dim()); ++d) {
      if (first[i].size(d) != last[i].size(d)) port.sizes[static_cast<std::size_t>(d)].reset();
    }
    ports.push_back(std::move(port));
  }
  return ports;
}

NamedOutputs values_of(const Batch& inputs) {
  NamedOutputs values;
  for (const auto& [key, tensor] : inputs) {
    values.names.push_back(key);
    values.tensors.push_back(tensor);
  }
  return values;
}

struct Case {
  Batch inputs;
  NamedOutputs expected;
};

Case make_case(const Model& model, Batch inputs, const ComparisonOptions& options) {
  NamedOutputs expected = call(model, inputs, options.output_names);
  return {std::move(inputs), std::move(expected)};
}

std::vector<Case> make_cases(const Model& model, const Batch& example,
                             const ComparisonOptions& options) {
  if (!options.dynamic_batch) return {make_case(model, example, options)};
  std::vector<Case> cases;
  try {
    cases.push_back(make_case(model, with_batch_size(example, kOneSample), options));
  } catch (const std::exception&) {
    cases.push_back(make_case(model, with_batch_size(example, kFewSamples), options));
  }
  cases.push_back(make_case(model, with_batch_size(example, kMoreSamples), options));
  return cases;
}

std::vector<torch::Tensor> run_case(const RunFile& run, const Case& one,
                                    const ComparisonOptions& options) {
  std::vector<torch::Tensor> found;
  try {
    found = run(one.inputs);
  } catch (const std::exception& error) {
    throw ConfigError("export: {} is not kept: it fails with a batch of {}: {}", options.file,
                      one.inputs.size(), message_of(error));
  }
  if (found.size() != one.expected.tensors.size()) {
    throw ConfigError("export: {} is not kept: it has {} outputs, the model has {}", options.file,
                      found.size(), one.expected.tensors.size());
  }
  return found;
}

}  // namespace

std::string describe(const Port& port) {
  std::vector<std::string> sizes;
  for (const auto& size : port.sizes) sizes.push_back(size ? std::to_string(*size) : "batch");
  return fmt::format("{} {} [{}]", port.name, c10::toString(port.type), join(sizes, ", "));
}

Exported compare_outputs(const Model& model, const Batch& example, const RunFile& run,
                         const ComparisonOptions& options) {
  const EvaluationMode mode(model);
  const std::vector<Case> cases = make_cases(model, example, options);
  Exported exported;
  for (const Case& one : cases) {
    exported.checked_sizes.push_back(one.inputs.size());
    const auto found = run_case(run, one, options);
    for (std::size_t i = 0; i < found.size(); ++i) {
      const Difference result = difference(one.expected.tensors[i], found[i]);
      if (result.reason || result.error > options.tolerance) {
        throw ConfigError(
            "export: {} is not kept: its output '{}' for a batch of {} is not the model's: {}. A "
            "model that draws random numbers in evaluation, decides by values of its inputs, or "
            "changes a part of a tensor in place, cannot be exported",
            options.file, one.expected.names[i], one.inputs.size(),
            result.reason.value_or(fmt::format("the largest difference is {:.3g} of its largest "
                                               "value, more than the tolerance {:.3g}",
                                               result.error, options.tolerance)));
      }
      exported.largest_error = std::max(exported.largest_error, result.error);
    }
  }
  const NamedOutputs first = values_of(cases.front().inputs), last = values_of(cases.back().inputs);
  exported.inputs = ports_of(first.names, first.tensors, last.tensors);
  exported.outputs = ports_of(cases.front().expected.names, cases.front().expected.tensors,
                              cases.back().expected.tensors);
  return exported;
}

}  // namespace lockstep::exporting

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

// The largest finite magnitude; 0 for integers, which are compared exactly.
double largest_of(const torch::Tensor& tensor) {
  if (tensor.numel() == 0 || !tensor.is_floating_point()) return 0;
  return tensor.to(torch::kFloat64).nan_to_num(0.0, 0.0, 0.0).abs().max().item<double>();
}

// The error is relative to the largest value, or to `usual` if that is larger.
Difference difference(const torch::Tensor& expected, const torch::Tensor& found, double usual) {
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
  const double largest = std::max(largest_of(expected), usual);
  const double error = torch::where(finite, (own - other).abs(), zero).max().item<double>();
  if (error == 0) return {};
  return {.error = largest > 0 ? error / largest : error};
}

// The inputs or outputs for one size of a batch.
struct SizedValues {
  const NamedOutputs& named;
  std::int64_t batch_size = 0;
};

// A dimension that differs between two sizes of a batch depends on the batch.
std::vector<Port> ports_of(const SizedValues& one, const SizedValues& other) {
  std::vector<Port> ports;
  for (std::size_t i = 0; i < one.named.names.size(); ++i) {
    const torch::Tensor &own = one.named.tensors[i], &others = other.named.tensors[i];
    Port port{.name = one.named.names[i], .type = own.scalar_type(), .sizes = {}};
    for (std::int64_t d = 0; d < own.dim(); ++d) {
      const std::int64_t size = own.size(d);
      const std::int64_t other_size = d < others.dim() ? others.size(d) : size;
      const bool is_batch = size == one.batch_size && other_size == other.batch_size;
      if (size == other_size) {
        port.sizes.emplace_back(size);
      } else if (is_batch) {
        port.sizes.emplace_back(kBatchSize);
      } else {
        port.sizes.emplace_back(other_size_name(port.name, static_cast<std::size_t>(d)));
      }
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
  // The outputs for the example's values, if these inputs have others.
  const NamedOutputs* usual = nullptr;
};

std::string describe_inputs(const Case& one) {
  return fmt::format("a batch of {}{}", one.inputs.size(),
                     one.usual != nullptr ? " with other values than the example's" : "");
}

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

bool is_finite(const NamedOutputs& outputs) {
  return std::ranges::all_of(outputs.tensors, [](const torch::Tensor& tensor) {
    return torch::isfinite(tensor).all().item<bool>();
  });
}

// A number or a decision that the model takes from the values of an input is a constant of the
// file. Other values show it. Nothing is returned if the model does not take such values: it throws
// or computes infinities or NaN.
std::optional<Case> other_case(const Model& model, const Case& one,
                               const ComparisonOptions& options) {
  for (const bool positions : {true, false}) {
    try {
      Case other =
          make_case(model, with_other_values(one.inputs, {.positions = positions}), options);
      other.usual = &one.expected;
      if (is_finite(other.expected)) return other;
    } catch (const std::exception&) {
      // Only the example is known to be valid.
    }
  }
  return std::nullopt;
}

std::vector<torch::Tensor> run_case(const RunFile& run, const Case& one,
                                    const ComparisonOptions& options) {
  std::vector<torch::Tensor> found;
  try {
    found = run(one.inputs);
  } catch (const std::exception& error) {
    throw ConfigError("export: {} is not kept: it fails with {}: {}", options.file,
                      describe_inputs(one), message_of(error));
  }
  if (found.size() != one.expected.tensors.size()) {
    throw ConfigError("export: {} is not kept: it has {} outputs, the model has {}", options.file,
                      found.size(), one.expected.tensors.size());
  }
  return found;
}

// Returns the largest error.
double check_case(const RunFile& run, const Case& one, const ComparisonOptions& options) {
  const auto found = run_case(run, one, options);
  double largest_error = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    // Unusual inputs may have tiny outputs, whose last digits do not matter.
    const double usual = one.usual != nullptr ? largest_of(one.usual->tensors[i]) : 0;
    const Difference result = difference(one.expected.tensors[i], found[i], usual);
    if (result.reason || result.error > options.tolerance) {
      throw ConfigError(
          "export: {} is not kept: its output '{}' for {} is not the model's: {}. {}", options.file,
          one.expected.names[i], describe_inputs(one),
          result.reason.value_or(fmt::format("the largest difference is {:.3g} of its largest "
                                             "value, more than the tolerance {:.3g}",
                                             result.error, options.tolerance)),
          one.usual != nullptr
              ? "Probably the file has a constant instead of a value of an input. Replace item() "
                "and "
                "conditions on values in the model by operations on tensors, for example "
                "x / x.max() instead of x / x.max().item<float>(), and torch::where instead of if"
              : "A model that draws random numbers in evaluation, decides by values of its inputs, "
                "or changes a part of a tensor in place, cannot be exported");
    }
    largest_error = std::max(largest_error, result.error);
  }
  return largest_error;
}

}  // namespace

std::string other_size_name(const std::string& port, std::size_t dimension) {
  return fmt::format("{}_dim_{}", port, dimension);
}

std::string describe(const Port& port) {
  std::vector<std::string> sizes;
  for (const PortSize& size : port.sizes) {
    const auto* const number = std::get_if<std::int64_t>(&size);
    sizes.push_back(number != nullptr ? std::to_string(*number) : std::get<std::string>(size));
  }
  return fmt::format("{} {} [{}]", port.name, c10::toString(port.type), join(sizes, ", "));
}

Exported compare_outputs(const Model& model, const Batch& example, const RunFile& run,
                         const ComparisonOptions& options) {
  const EvaluationMode mode(model);
  const std::vector<Case> cases = make_cases(model, example, options);
  Exported exported;
  for (const Case& one : cases) {
    exported.checked_sizes.push_back(one.inputs.size());
    exported.largest_error = std::max(exported.largest_error, check_case(run, one, options));
  }
  if (const auto other = other_case(model, cases.back(), options)) {
    exported.largest_error = std::max(exported.largest_error, check_case(run, *other, options));
  }
  const Case &first = cases.front(), &last = cases.back();
  const std::int64_t size = first.inputs.size(), last_size = last.inputs.size();
  const NamedOutputs inputs = values_of(first.inputs), last_inputs = values_of(last.inputs);
  exported.inputs = ports_of({inputs, size}, {last_inputs, last_size});
  exported.outputs = ports_of({first.expected, size}, {last.expected, last_size});
  return exported;
}

}  // namespace lockstep::exporting

#include "lockstep/metric/regression.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/metric/predictions.h"
#include "lockstep/metric/saved_tensor.h"

namespace lockstep::metric {
namespace {

const double kMissing = std::nan("");

double mean_of(double sum, const JointMoments& moments) {
  // 0 / 0 gives the NaN that is documented for no numbers
  return sum / static_cast<double>(moments.count());
}

double mae_of(const JointMoments& m) {
  return mean_of(m.absolute_error(), m);
}

double mse_of(const JointMoments& m) {
  return mean_of(m.squared_error(), m);
}

double rmse_of(const JointMoments& m) {
  return std::sqrt(mse_of(m));
}

double mape_of(const JointMoments& m) {
  return mean_of(m.relative_error(), m);
}

// 1 - part / whole; as scikit-learn's if all targets are equal.
double explained(double part, double whole) {
  if (whole != 0) return 1 - part / whole;
  if (std::isnan(part)) return part;
  return part == 0 ? 1 : 0;
}

double r2_of(const JointMoments& m) {
  return m.count() < 2 ? kMissing : explained(m.squared_error(), m.expected_variation());
}

double explained_variance_of(const JointMoments& m) {
  return m.count() < 1 ? kMissing : explained(m.centered_squared_error(), m.expected_variation());
}

double pearson_of(const JointMoments& m) {
  if (m.count() < 2) return kMissing;
  const double scale = std::sqrt(m.predicted_variation()) * std::sqrt(m.expected_variation());
  if (!(scale > 0)) return kMissing;
  return std::clamp(m.covariation() / scale, -1.0, 1.0);
}

struct Score {
  std::string name;
  double (*function)(const JointMoments&);
  Better better;
};

const std::vector<Score>& all_scores() {
  static const std::vector<Score> scores = {
      {"mae", mae_of, Better::kSmaller},
      {"mse", mse_of, Better::kSmaller},
      {"rmse", rmse_of, Better::kSmaller},
      {"r2", r2_of, Better::kLarger},
      {"mape", mape_of, Better::kSmaller},
      {"explained_variance", explained_variance_of, Better::kLarger},
      {"pearson", pearson_of, Better::kLarger}};
  return scores;
}

const Score& score_named(const std::string& name) {
  const auto found = std::ranges::find(all_scores(), name, &Score::name);
  if (found != all_scores().end()) return *found;
  std::vector<std::string> known;
  for (const Score& score : all_scores()) known.push_back(score.name);
  throw ConfigError("regression: metrics: there is no '{}'; {}", name, suggest(name, known));
}

// [N, outputs, rest], or DataError.
std::array<std::int64_t, 3> layout_of(const torch::Tensor& outputs, const torch::Tensor& targets,
                                      std::int64_t num_outputs) {
  expect_same_samples(outputs, targets);
  const bool are_single = is_one_a_sample(outputs) && is_one_a_sample(targets);
  if (outputs.sizes() != targets.sizes() && !are_single) {
    throw DataError("regression: outputs [{}] and targets [{}]: expected the same shape",
                    fmt::join(outputs.sizes(), ", "), fmt::join(targets.sizes(), ", "));
  }
  const std::int64_t samples = outputs.size(0);
  const bool fits = num_outputs == 1 || (outputs.dim() >= 2 && outputs.size(1) == num_outputs);
  if (!fits) {
    throw DataError(
        "regression: outputs: expected the shape [samples, num_outputs = {}, …], got "
        "[{}]",
        num_outputs, fmt::join(outputs.sizes(), ", "));
  }
  const std::int64_t rows = samples * num_outputs;
  return {samples, num_outputs, rows == 0 ? 0 : outputs.numel() / rows};
}

template <typename T>
void add_rows(const torch::Tensor& outputs, const torch::Tensor& targets,
              const std::array<std::int64_t, 3>& layout, std::vector<JointMoments>& moments) {
  const auto size = static_cast<std::size_t>(layout[2]);
  const T* output = outputs.data_ptr<T>();
  const T* target = targets.data_ptr<T>();
  for (std::int64_t sample = 0; sample < layout[0]; ++sample) {
    for (JointMoments& of_output : moments) {
      of_output.add(std::span<const T>(output, size), std::span<const T>(target, size));
      output += size;
      target += size;
    }
  }
}

bool is_narrow(const torch::Tensor& tensor) {
  const auto type = tensor.scalar_type();
  return type == torch::kFloat32 || type == torch::kFloat16 || type == torch::kBFloat16;
}

}  // namespace

Regression::Regression(RegressionOptions options) : options_(std::move(options)) {
  if (options_.metrics.empty()) throw ConfigError("regression: metrics: expected one or more");
  if (options_.num_outputs < 1) {
    throw ConfigError("regression: num_outputs: expected 1 or more, got {}", options_.num_outputs);
  }
  for (const std::string& metric : options_.metrics) {
    score_named(metric);  // throws if there is no such metric
    if (std::ranges::count(options_.metrics, metric) > 1) {
      throw ConfigError("regression: metrics: expected each once, got {} twice", metric);
    }
  }
  reset();
}

void Regression::reset() {
  outputs_.assign(static_cast<std::size_t>(options_.num_outputs), {});
}

void Regression::update(const torch::Tensor& outputs, const torch::Tensor& targets) {
  const auto layout = layout_of(outputs, targets, options_.num_outputs);
  const auto type = is_narrow(outputs) && is_narrow(targets) ? torch::kFloat32 : torch::kFloat64;
  const torch::Tensor predicted = outputs.detach().to(torch::kCPU, type).contiguous();
  const torch::Tensor expected = targets.detach().to(torch::kCPU, type).contiguous();
  if (type == torch::kFloat32) {
    add_rows<float>(predicted, expected, layout, outputs_);
  } else {
    add_rows<double>(predicted, expected, layout, outputs_);
  }
}

std::string Regression::name(const std::string& metric) const {
  return options_.prefix + metric + options_.suffix;
}

std::string Regression::output_name(const std::string& metric, std::size_t output) const {
  return fmt::format("{}/output_{:02}", name(metric), output);
}

std::vector<std::string> Regression::names() const {
  std::vector<std::string> names;
  for (const std::string& metric : options_.metrics) {
    names.push_back(name(metric));
    for (std::size_t o = 0; options_.per_output && o < outputs_.size(); ++o) {
      names.push_back(output_name(metric, o));
    }
  }
  return names;
}

std::optional<Better> Regression::better(std::string_view metric) const {
  for (const std::string& own : options_.metrics) {
    const std::string plain = name(own);
    if (metric == plain || metric.starts_with(plain + "/")) return score_named(own).better;
  }
  return std::nullopt;
}

Metrics Regression::compute() const {
  Metrics metrics;
  for (const std::string& metric : options_.metrics) {
    const Score& score = score_named(metric);
    double sum = 0;
    for (std::size_t o = 0; o < outputs_.size(); ++o) {
      const double value = score.function(outputs_[o]);
      if (options_.per_output) metrics[output_name(metric, o)] = value;
      sum += value;
    }
    metrics[name(metric)] = sum / static_cast<double>(outputs_.size());
  }
  return metrics;
}

StateDict Regression::state() const {
  std::vector<std::int64_t> counts;
  std::vector<ExactSum> sums;
  for (const JointMoments& moments : outputs_) {
    counts.push_back(moments.count());
    sums.insert(sums.end(), moments.sums().begin(), moments.sums().end());
  }
  return {{"counts", tensor_of<std::int64_t>(counts, {options_.num_outputs})},
          {"sums", saved_sums(sums)}};
}

std::vector<JointMoments> Regression::read(const StateDict& state) const {
  constexpr auto kSums = static_cast<std::int64_t>(JointMoments::kSums);
  const auto counts = saved_values<std::int64_t>(state, "counts", {options_.num_outputs});
  const auto sums = read_sums(state, "sums", options_.num_outputs * kSums);
  std::vector<JointMoments> outputs;
  for (std::size_t o = 0; o < counts.size(); ++o) {
    outputs.emplace_back(counts[o],
                         std::span(sums).subspan(o * JointMoments::kSums, JointMoments::kSums));
  }
  return outputs;
}

void Regression::merge(const StateDict& other) {
  const std::vector<JointMoments> theirs = read(other);
  for (std::size_t o = 0; o < outputs_.size(); ++o) outputs_[o].merge(theirs[o]);
}

}  // namespace lockstep::metric

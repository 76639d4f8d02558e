#include "lockstep/metric/scores.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/metric/predictions.h"

namespace lockstep::metric {
namespace {

// As in scikit-learn: the logarithm of a probability of 0 or 1 is that of the nearest one inside.
constexpr double kSmallestProbability = std::numeric_limits<double>::epsilon();

double log_of_probability(double probability) {
  return std::log(std::clamp(probability, kSmallestProbability, 1 - kSmallestProbability));
}

// log(1 + exp(x)), without overflow.
double softplus(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
}

// Both rows are of one sample. `scores` may be the values.
void fill_from_logits(std::span<const double> scores, std::span<double> values,
                      std::span<double> logs) {
  const double largest = std::ranges::max(scores);
  double sum = 0;
  for (const double score : scores) sum += std::exp(score - largest);
  const double log_sum = std::log(sum);
  for (std::size_t c = 0; c < scores.size(); ++c) {
    logs[c] = scores[c] - largest - log_sum;
    values[c] = std::exp(logs[c]);
  }
}

// Of being 0 and being 1, from the logit of being 1.
void fill_from_logit(double logit, std::span<double> values, std::span<double> logs) {
  logs[0] = -softplus(logit);
  logs[1] = -softplus(-logit);
  values[0] = std::exp(logs[0]);
  values[1] = std::exp(logs[1]);
}

void check_score(double score, ScoreKind kind, std::int64_t sample, std::string_view metric) {
  if (!std::isfinite(score)) {
    throw DataError("{}: outputs: a score of sample {} is {}", metric, sample, score);
  }
  if (kind == ScoreKind::kProbabilities && (score < 0 || score > 1)) {
    throw DataError(
        "{}: outputs: a score of sample {} is {}, expected a probability from 0 to 1; for logits, "
        "set scores to logits",
        metric, sample, score);
  }
}

}  // namespace

double score_limit(ScoreKind kind, double threshold, std::string_view metric) {
  if (!(threshold >= 0 && threshold <= 1)) {
    throw ConfigError("{}: threshold: expected a probability from 0 to 1, got {}", metric,
                      threshold);
  }
  if (kind == ScoreKind::kProbabilities) return threshold;
  return std::log(threshold) - std::log1p(-threshold);  // infinite for 0 and 1
}

ClassProbabilities class_probabilities(const torch::Tensor& outputs, const torch::Tensor& targets,
                                       ScoreKind kind, std::string_view metric) {
  expect_same_samples(outputs, targets);
  const bool is_binary = is_one_a_sample(outputs);
  const torch::Tensor scores =
      to_scores(outputs.dim() == 1 ? outputs.unsqueeze(1) : outputs).to(torch::kFloat64);
  const std::int64_t samples = scores.size(0);
  const std::int64_t classes = is_binary ? 2 : scores.size(1);
  // Binary targets are often floats, because binary_cross_entropy needs them.
  const torch::Tensor labels = is_binary ? to_predictions(targets, 2) : to_labels(targets, classes);

  ClassProbabilities result{.values = torch::empty({samples, classes}, torch::kFloat64),
                            .logs = torch::empty({samples, classes}, torch::kFloat64),
                            .labels = labels.reshape({samples})};
  auto* values = result.values.data_ptr<double>();
  auto* logs = result.logs.data_ptr<double>();
  const auto width = static_cast<std::size_t>(classes);
  const auto columns = static_cast<std::size_t>(scores.size(1));
  const double* row = scores.data_ptr<double>();
  for (std::int64_t i = 0; i < samples; ++i, row += columns, values += width, logs += width) {
    const std::span<const double> own(row, columns);
    for (const double score : own) check_score(score, kind, i, metric);
    const std::span<double> to(values, width), log_to(logs, width);
    if (kind == ScoreKind::kLogits) {
      is_binary ? fill_from_logit(row[0], to, log_to) : fill_from_logits(own, to, log_to);
      continue;
    }
    if (is_binary) {
      to[0] = 1 - row[0];
      to[1] = row[0];
    } else {
      std::ranges::copy(own, to.begin());
    }
    std::ranges::transform(to, log_to.begin(), log_of_probability);
  }
  return result;
}

}  // namespace lockstep::metric

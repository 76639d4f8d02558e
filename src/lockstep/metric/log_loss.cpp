#include "lockstep/metric/log_loss.h"

#include "lockstep/metric/predictions.h"

namespace lockstep::metric {

LogLoss::LogLoss(LogLossOptions options)
    : SampleMeans({options.prefix + "log_loss" + options.suffix}, Better::kSmaller),
      kind_(options.scores) {}

void LogLoss::update(const torch::Tensor& outputs, const torch::Tensor& targets) {
  const ClassProbabilities read = class_probabilities(outputs, targets, kind_, "log_loss");
  const auto logs = elements<double>(read.logs);
  const auto classes = static_cast<std::size_t>(read.logs.size(1));
  std::vector<double> losses;
  for (const std::int64_t label : elements<std::int64_t>(read.labels)) {
    losses.push_back(-logs[losses.size() * classes + static_cast<std::size_t>(label)]);
  }
  add(0, losses);
}

}  // namespace lockstep::metric

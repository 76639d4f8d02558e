#include "lockstep/metric/functional.h"

#include <string>

#include "lockstep/base/error.h"

namespace lockstep::metric {
namespace {

Metrics of_binary(const torch::Tensor& outputs, const torch::Tensor& targets,
                  const BinaryThreshold& threshold) {
  return evaluate(
      MultilabelPrecisionRecallF1Support(
          {.num_classes = 1, .scores = threshold.scores, .threshold = threshold.threshold}),
      outputs, targets);
}

double multilabel_share(const torch::Tensor& outputs, const torch::Tensor& targets,
                        const BinaryThreshold& threshold, std::int64_t num_classes) {
  return evaluate(MultilabelAccuracy({.num_classes = num_classes,
                                      .scores = threshold.scores,
                                      .threshold = threshold.threshold}),
                  outputs, targets)
      .at("accuracy");
}

Metrics of_classes(const torch::Tensor& outputs, const torch::Tensor& targets,
                   std::int64_t num_classes) {
  return evaluate(PrecisionRecallF1Support({.num_classes = num_classes}), outputs, targets);
}

// The name of the value does not matter to the caller, so prefix and suffix are left out.
template <typename Options>
Options unnamed(Options options) {
  options.prefix.clear();
  options.suffix.clear();
  return options;
}

double of_numbers(const torch::Tensor& outputs, const torch::Tensor& targets, const char* name) {
  return evaluate(Regression({.metrics = {name}}), outputs, targets).at(name);
}

double of_list(const torch::Tensor& outputs, const torch::Tensor& targets, const char* name,
               std::int64_t k) {
  const Metrics metrics = evaluate(Ranking({.metrics = {name}, .topk = {k}}), outputs, targets);
  return metrics.at(fmt::format("{}{:02}", name, k));
}

}  // namespace

double accuracy(const torch::Tensor& outputs, const torch::Tensor& targets, std::int64_t k) {
  return evaluate(Accuracy({.topk = {k}}), outputs, targets).at(fmt::format("accuracy{:02}", k));
}

double binary_accuracy(const torch::Tensor& outputs, const torch::Tensor& targets,
                       const BinaryThreshold& threshold) {
  return multilabel_share(outputs, targets, threshold, 1);
}

double multilabel_accuracy(const torch::Tensor& outputs, const torch::Tensor& targets,
                           const BinaryThreshold& threshold) {
  if (outputs.dim() < 2) {
    throw DataError("multilabel_accuracy: outputs: expected the shape [samples, classes], got [{}]",
                    fmt::join(outputs.sizes(), ", "));
  }
  return multilabel_share(outputs, targets, threshold, outputs.size(1));
}

double binary_precision(const torch::Tensor& outputs, const torch::Tensor& targets,
                        const BinaryThreshold& threshold) {
  return of_binary(outputs, targets, threshold).at("precision");
}

double binary_recall(const torch::Tensor& outputs, const torch::Tensor& targets,
                     const BinaryThreshold& threshold) {
  return of_binary(outputs, targets, threshold).at("recall");
}

double binary_f1(const torch::Tensor& outputs, const torch::Tensor& targets,
                 const BinaryThreshold& threshold) {
  return of_binary(outputs, targets, threshold).at("f1");
}

double precision(const torch::Tensor& outputs, const torch::Tensor& targets,
                 std::int64_t num_classes) {
  return of_classes(outputs, targets, num_classes).at("precision/_macro");
}

double recall(const torch::Tensor& outputs, const torch::Tensor& targets,
              std::int64_t num_classes) {
  return of_classes(outputs, targets, num_classes).at("recall/_macro");
}

double f1(const torch::Tensor& outputs, const torch::Tensor& targets, std::int64_t num_classes) {
  return of_classes(outputs, targets, num_classes).at("f1/_macro");
}

double fbeta(const torch::Tensor& outputs, const torch::Tensor& targets,
             const FBetaOptions& options) {
  if (!(options.beta > 0)) {
    throw ConfigError("fbeta: beta: expected a positive number, got {}", options.beta);
  }
  const Metrics metrics =
      evaluate(PrecisionRecallF1Support({.num_classes = options.num_classes, .per_class = true}),
               outputs, targets);
  const double square = options.beta * options.beta;
  const auto classes = static_cast<std::size_t>(options.num_classes);
  double sum = 0;
  for (std::size_t c = 0; c < classes; ++c) {
    const double precision = metrics.at("precision/" + class_label(c));
    const double recall = metrics.at("recall/" + class_label(c));
    const double all = square * precision + recall;
    if (all > 0) sum += (1 + square) * precision * recall / all;
  }
  return sum / static_cast<double>(classes);
}

double auc(const torch::Tensor& outputs, const torch::Tensor& targets) {
  return evaluate(AUC(AUCOptions{}), outputs, targets).at("auc");
}

torch::Tensor confusion_matrix(const torch::Tensor& outputs, const torch::Tensor& targets,
                               std::int64_t num_classes) {
  ConfusionMatrix matrix({.num_classes = num_classes});
  matrix.update(outputs, targets);
  return matrix.counts();
}

double log_loss(const torch::Tensor& outputs, const torch::Tensor& targets, ScoreKind scores) {
  return evaluate(LogLoss({.scores = scores}), outputs, targets).at("log_loss");
}

double calibration_error(const torch::Tensor& outputs, const torch::Tensor& targets,
                         const CalibrationErrorOptions& options) {
  return evaluate(CalibrationError(unnamed(options)), outputs, targets).at("ece");
}

double iou(const torch::Tensor& outputs, const torch::Tensor& targets,
           const SegmentationOptions& options) {
  return evaluate(IoU(unnamed(options)), outputs, targets).at("iou");
}

double dice(const torch::Tensor& outputs, const torch::Tensor& targets,
            const SegmentationOptions& options) {
  return evaluate(Dice(unnamed(options)), outputs, targets).at("dice");
}

double tversky(const torch::Tensor& outputs, const torch::Tensor& targets,
               const TverskyOptions& options) {
  TverskyOptions plain = options;
  plain.maps = unnamed(options.maps);
  return evaluate(Tversky(plain), outputs, targets).at("tversky");
}

double trevsky(const torch::Tensor& outputs, const torch::Tensor& targets,
               const TverskyOptions& options) {
  return tversky(outputs, targets, options);
}

double pixel_accuracy(const torch::Tensor& outputs, const torch::Tensor& targets,
                      const SegmentationOptions& options) {
  return evaluate(PixelAccuracy(unnamed(options)), outputs, targets).at("pixel_accuracy");
}

double mae(const torch::Tensor& outputs, const torch::Tensor& targets) {
  return of_numbers(outputs, targets, "mae");
}

double mse(const torch::Tensor& outputs, const torch::Tensor& targets) {
  return of_numbers(outputs, targets, "mse");
}

double rmse(const torch::Tensor& outputs, const torch::Tensor& targets) {
  return of_numbers(outputs, targets, "rmse");
}

double r2(const torch::Tensor& outputs, const torch::Tensor& targets) {
  return of_numbers(outputs, targets, "r2");
}

double mape(const torch::Tensor& outputs, const torch::Tensor& targets) {
  return of_numbers(outputs, targets, "mape");
}

double explained_variance(const torch::Tensor& outputs, const torch::Tensor& targets) {
  return of_numbers(outputs, targets, "explained_variance");
}

double pearson(const torch::Tensor& outputs, const torch::Tensor& targets) {
  return of_numbers(outputs, targets, "pearson");
}

double hitrate(const torch::Tensor& outputs, const torch::Tensor& targets, std::int64_t k) {
  return of_list(outputs, targets, "hitrate", k);
}

double mrr(const torch::Tensor& outputs, const torch::Tensor& targets, std::int64_t k) {
  return of_list(outputs, targets, "mrr", k);
}

double mean_average_precision(const torch::Tensor& outputs, const torch::Tensor& targets,
                              std::int64_t k) {
  return of_list(outputs, targets, "map", k);
}

double ndcg(const torch::Tensor& outputs, const torch::Tensor& targets, std::int64_t k) {
  return of_list(outputs, targets, "ndcg", k);
}

double cmc(const torch::Tensor& outputs, const torch::Tensor& targets, std::int64_t k) {
  return evaluate(Cmc({.topk = {k}}), outputs, targets).at(fmt::format("cmc{:02}", k));
}

}  // namespace lockstep::metric

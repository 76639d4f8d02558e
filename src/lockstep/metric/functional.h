// Metrics of outputs and targets that are all there, as functions:
//
//   const double score = ls::metric::iou(outputs, targets, {.num_classes = 3});
//
// Each takes the shapes of its class, and throws as it does. To accumulate over batches, use the
// class.
#pragma once

#include <cstdint>

#include <torch/types.h>

#include "lockstep/metric/accuracy.h"
#include "lockstep/metric/auc.h"
#include "lockstep/metric/calibration.h"
#include "lockstep/metric/cmc.h"
#include "lockstep/metric/confusion_matrix.h"
#include "lockstep/metric/log_loss.h"
#include "lockstep/metric/multilabel_accuracy.h"
#include "lockstep/metric/precision_recall.h"
#include "lockstep/metric/ranking.h"
#include "lockstep/metric/regression.h"
#include "lockstep/metric/segmentation.h"

namespace lockstep::metric {

// All values of a metric of these outputs and targets: evaluate(IoU({.num_classes = 3, .per_class =
// true}), outputs, targets).at("iou/class_02").
template <typename M>
Metrics evaluate(M metric, const torch::Tensor& outputs, const torch::Tensor& targets) {
  metric.update(outputs, targets);
  return metric.compute();
}

// Classes. One logit per sample, or one per class, with targets 0 and 1: binary_accuracy and
// multilabel_accuracy.
double accuracy(const torch::Tensor& outputs, const torch::Tensor& targets, std::int64_t k = 1);
struct BinaryThreshold {
  ScoreKind scores = ScoreKind::kLogits;  // the kind of the outputs
  double threshold = 0.5;                 // a class is predicted if its probability is above this
};
double binary_accuracy(const torch::Tensor& outputs, const torch::Tensor& targets,
                       const BinaryThreshold& threshold = {});
double multilabel_accuracy(const torch::Tensor& outputs, const torch::Tensor& targets,
                           const BinaryThreshold& threshold = {});
// Of being 1.
double binary_precision(const torch::Tensor& outputs, const torch::Tensor& targets,
                        const BinaryThreshold& threshold = {});
double binary_recall(const torch::Tensor& outputs, const torch::Tensor& targets,
                     const BinaryThreshold& threshold = {});
double binary_f1(const torch::Tensor& outputs, const torch::Tensor& targets,
                 const BinaryThreshold& threshold = {});
// The means over the classes.
double precision(const torch::Tensor& outputs, const torch::Tensor& targets,
                 std::int64_t num_classes);
double recall(const torch::Tensor& outputs, const torch::Tensor& targets, std::int64_t num_classes);
double f1(const torch::Tensor& outputs, const torch::Tensor& targets, std::int64_t num_classes);
struct FBetaOptions {
  std::int64_t num_classes = 0;  // required
  double beta = 1;               // recall is worth this many times as much as precision
};
double fbeta(const torch::Tensor& outputs, const torch::Tensor& targets,
             const FBetaOptions& options);
double auc(const torch::Tensor& outputs, const torch::Tensor& targets);
// int64 [num_classes, num_classes], rows true, columns predicted.
torch::Tensor confusion_matrix(const torch::Tensor& outputs, const torch::Tensor& targets,
                               std::int64_t num_classes);
double log_loss(const torch::Tensor& outputs, const torch::Tensor& targets,
                ScoreKind scores = ScoreKind::kLogits);
double calibration_error(const torch::Tensor& outputs, const torch::Tensor& targets,
                         const CalibrationErrorOptions& options = {});

// Maps of classes. The means over the classes; pixel_accuracy over all positions.
double iou(const torch::Tensor& outputs, const torch::Tensor& targets,
           const SegmentationOptions& options);
double dice(const torch::Tensor& outputs, const torch::Tensor& targets,
            const SegmentationOptions& options);
double tversky(const torch::Tensor& outputs, const torch::Tensor& targets,
               const TverskyOptions& options);
double trevsky(const torch::Tensor& outputs, const torch::Tensor& targets,
               const TverskyOptions& options);  // Catalyst's spelling
double pixel_accuracy(const torch::Tensor& outputs, const torch::Tensor& targets,
                      const SegmentationOptions& options);

// Numbers.
double mae(const torch::Tensor& outputs, const torch::Tensor& targets);
double mse(const torch::Tensor& outputs, const torch::Tensor& targets);
double rmse(const torch::Tensor& outputs, const torch::Tensor& targets);
double r2(const torch::Tensor& outputs, const torch::Tensor& targets);
double mape(const torch::Tensor& outputs, const torch::Tensor& targets);
double explained_variance(const torch::Tensor& outputs, const torch::Tensor& targets);
double pearson(const torch::Tensor& outputs, const torch::Tensor& targets);

// Ordered lists.
double hitrate(const torch::Tensor& outputs, const torch::Tensor& targets, std::int64_t k);
double mrr(const torch::Tensor& outputs, const torch::Tensor& targets, std::int64_t k);
double mean_average_precision(const torch::Tensor& outputs, const torch::Tensor& targets,
                              std::int64_t k);
double ndcg(const torch::Tensor& outputs, const torch::Tensor& targets, std::int64_t k);

// Embeddings, with the targets of Cmc.
double cmc(const torch::Tensor& outputs, const torch::Tensor& targets, std::int64_t k = 1);

}  // namespace lockstep::metric

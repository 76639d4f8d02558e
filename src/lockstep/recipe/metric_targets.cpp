#include "lockstep/callback/classification.h"
#include "lockstep/callback/cmc.h"
#include "lockstep/callback/confusion_matrix.h"
#include "lockstep/callback/default_metric.h"
#include "lockstep/callback/multilabel.h"
#include "lockstep/callback/probability.h"
#include "lockstep/callback/ranking.h"
#include "lockstep/callback/regression.h"
#include "lockstep/callback/running_mean.h"
#include "lockstep/callback/segmentation.h"
#include "lockstep/recipe/targets.h"
#include "lockstep/recipe/values.h"

namespace lockstep::recipe {
namespace {

using config::Field;

template <typename Callback, typename Options>
void add_metric(Targets& targets, const std::string& name, const std::string& about,
                const std::vector<Field<Options>>& fields) {
  targets.callbacks.add<Options>(name, about, fields,
                                 [](const Options& o) { return std::make_shared<Callback>(o); });
}

const char* const kInput = "scores [N, C], or predictions [N], in the batch";
const char* const kTarget = "labels in the batch";
const char* const kPrefix = "before the metric's name";
const char* const kSuffix = "after the metric's name";
const char* const kScores = "whether the outputs are logits or probabilities";
const char* const kPerClass = "also each class, not only the averages";
const char* const kZeroDivision = "the value of a ratio 0 / 0";
const char* const kBinaryInput = "scores of being 1, [N] or [N, 1], in the batch";
const char* const kBinaryTarget = "0 and 1, [N] or [N, 1], in the batch";
const char* const kManyInput = "scores [N, C] in the batch";
const char* const kManyTarget = "0 and 1, [N, C], in the batch";
const char* const kThreshold = "a class is predicted if its probability is above this";

void add_classification(Targets& targets) {
  using A = AccuracyCallbackOptions;
  add_metric<AccuracyCallback, A>(
      targets, "AccuracyCallback", "accuracy01, accuracy03, accuracy05.",
      {{"input_key", &A::input_key, kInput},
       {"target_key", &A::target_key, kTarget},
       {"topk", &A::topk, "which k; default: 1, and 3 and 5 if num_classes allows"},
       {"num_classes", &A::num_classes, "of the targets"},
       {"prefix", &A::prefix, kPrefix},
       {"suffix", &A::suffix, kSuffix}});
  using P = PrecisionRecallF1SupportCallbackOptions;
  add_metric<PrecisionRecallF1SupportCallback, P>(
      targets, "PrecisionRecallF1SupportCallback", "precision, recall and f1, averaged three ways.",
      {{"input_key", &P::input_key, kInput},
       {"target_key", &P::target_key, kTarget},
       config::required("num_classes", &P::num_classes, "of the targets"),
       {"zero_division", &P::zero_division, kZeroDivision},
       {"per_class", &P::per_class, kPerClass},
       {"prefix", &P::prefix, kPrefix},
       {"suffix", &P::suffix, kSuffix}});
  using U = AUCCallbackOptions;
  add_metric<AUCCallback, U>(
      targets, "AUCCallback", "The area under the ROC curve, exact.",
      {{"input_key", &U::input_key, kInput},
       {"target_key", &U::target_key, kTarget},
       {"num_classes", &U::num_classes, "of the targets; default: taken from the first batch"},
       {"per_class", &U::per_class, kPerClass},
       {"prefix", &U::prefix, kPrefix},
       {"suffix", &U::suffix, kSuffix}});
  using M = ConfusionMatrixCallbackOptions;
  add_metric<ConfusionMatrixCallback, M>(
      targets, "ConfusionMatrixCallback", "Which class is predicted as which, as a picture.",
      {{"input_key", &M::input_key, kInput},
       {"target_key", &M::target_key, kTarget},
       {"num_classes", &M::num_classes, "of the targets; not needed with class_names"},
       {"class_names", &M::class_names, "default: 0, 1, 2, …"},
       {"normalized", &M::normalized, "shares of each true class instead of counts"},
       {"prefix", &M::prefix, "before confusion_matrix in the picture's tag"}});
}

void add_multilabel(Targets& targets) {
  using B = BinaryAccuracyCallbackOptions;
  add_metric<BinaryAccuracyCallback, B>(targets, "BinaryAccuracyCallback",
                                        "accuracy of one score per sample.",
                                        {{"input_key", &B::input_key, kBinaryInput},
                                         {"target_key", &B::target_key, kBinaryTarget},
                                         {"scores", &B::scores, kScores},
                                         {"threshold", &B::threshold, kThreshold},
                                         {"prefix", &B::prefix, kPrefix},
                                         {"suffix", &B::suffix, kSuffix}});
  using M = MultilabelAccuracyCallbackOptions;
  add_metric<MultilabelAccuracyCallback, M>(
      targets, "MultilabelAccuracyCallback",
      "accuracy and exact_match of samples with several classes.",
      {{"input_key", &M::input_key, kManyInput},
       {"target_key", &M::target_key, kManyTarget},
       config::required("num_classes", &M::num_classes, "of the targets"),
       {"scores", &M::scores, kScores},
       {"threshold", &M::threshold, kThreshold},
       {"prefix", &M::prefix, kPrefix},
       {"suffix", &M::suffix, kSuffix}});
  using P = BinaryPrecisionRecallF1SupportCallbackOptions;
  add_metric<BinaryPrecisionRecallF1SupportCallback, P>(
      targets, "BinaryPrecisionRecallF1SupportCallback", "precision, recall and f1 of being 1.",
      {{"input_key", &P::input_key, kBinaryInput},
       {"target_key", &P::target_key, kBinaryTarget},
       {"scores", &P::scores, kScores},
       {"threshold", &P::threshold, kThreshold},
       {"zero_division", &P::zero_division, kZeroDivision},
       {"prefix", &P::prefix, kPrefix},
       {"suffix", &P::suffix, kSuffix}});
  using S = MultilabelPrecisionRecallF1SupportCallbackOptions;
  add_metric<MultilabelPrecisionRecallF1SupportCallback, S>(
      targets, "MultilabelPrecisionRecallF1SupportCallback",
      "precision, recall and f1 of samples with several classes.",
      {{"input_key", &S::input_key, kManyInput},
       {"target_key", &S::target_key, kManyTarget},
       config::required("num_classes", &S::num_classes, "of the targets"),
       {"scores", &S::scores, kScores},
       {"threshold", &S::threshold, kThreshold},
       {"zero_division", &S::zero_division, kZeroDivision},
       {"per_class", &S::per_class, kPerClass},
       {"prefix", &S::prefix, kPrefix},
       {"suffix", &S::suffix, kSuffix}});
}

void add_probability(Targets& targets) {
  using L = LogLossCallbackOptions;
  add_metric<LogLossCallback, L>(
      targets, "LogLossCallback", "log_loss: the mean of -log(probability of the true class).",
      {{"input_key", &L::input_key, "scores [N, C], or [N] of being 1, in the batch"},
       {"target_key", &L::target_key, kTarget},
       {"scores", &L::scores, kScores},
       {"prefix", &L::prefix, kPrefix},
       {"suffix", &L::suffix, kSuffix}});
  using E = CalibrationErrorCallbackOptions;
  add_metric<CalibrationErrorCallback, E>(
      targets, "CalibrationErrorCallback", "ece and mce: whether probabilities are true.",
      {{"input_key", &E::input_key, "scores [N, C], or [N] of being 1, in the batch"},
       {"target_key", &E::target_key, kTarget},
       {"bins", &E::bins, "intervals of equal width, from 0 to 1"},
       {"scores", &E::scores, kScores},
       {"prefix", &E::prefix, kPrefix},
       {"suffix", &E::suffix, kSuffix}});
}

void add_segmentation(Targets& targets) {
  using S = SegmentationCallbackOptions;
  const std::vector<Field<S>> fields = {
      {"input_key", &S::input_key, "scores [N, C, …], or classes [N, …], in the batch"},
      {"target_key", &S::target_key, "classes [N, …], or 0 and 1 as [N, C, …], in the batch"},
      config::required("num_classes", &S::num_classes,
                       "of the targets; 1: one class against the background"),
      {"threshold", &S::threshold,
       "a probability, for each class on its own; default: the class with the highest score"},
      {"scores", &S::scores, "with a threshold, whether the outputs are logits or probabilities"},
      {"ignore_index", &S::ignore_index, "a target that does not count"},
      {"per_class", &S::per_class, kPerClass},
      {"weights", &S::weights,
       "of the classes, for _weighted; default: their numbers of positions"},
      {"zero_division", &S::zero_division, "of a class that is neither there nor predicted"},
      {"prefix", &S::prefix, kPrefix},
      {"suffix", &S::suffix, kSuffix}};
  add_metric<IOUCallback>(targets, "IOUCallback", "iou (Jaccard index) of maps of classes.",
                          fields);
  add_metric<DiceCallback>(targets, "DiceCallback", "dice of maps of classes.", fields);
  add_metric<PixelAccuracyCallback>(targets, "PixelAccuracyCallback",
                                    "pixel_accuracy of maps of classes.", fields);
  using T = TverskyCallbackOptions;
  std::vector<Field<T>> tversky = {
      {"alpha", &T::alpha, "the weight of positions that are missed, from 0 to 1"},
      {"beta", &T::beta, "the weight of positions that are wrong; default: 1 - alpha"}};
  for (const auto& field : fields) tversky.push_back(field.inside(&T::maps));
  add_metric<TverskyCallback>(targets, "TverskyCallback", "tversky of maps of classes.", tversky);
  add_metric<TverskyCallback>(targets, "TrevskyCallback",
                              "TverskyCallback, in Catalyst's spelling.", tversky);
}

void add_regression(Targets& targets) {
  using R = RegressionCallbackOptions;
  add_metric<RegressionCallback, R>(
      targets, "RegressionCallback", "Metrics of predicted numbers.",
      {{"input_key", &R::input_key, "the model's outputs in the batch"},
       {"target_key", &R::target_key, "the expected numbers in the batch"},
       {"metrics", &R::metrics, "of mae, mse, rmse, r2, mape, explained_variance, pearson"},
       {"num_outputs", &R::num_outputs, "more than 1: [N, num_outputs, …], and the mean over them"},
       {"per_output", &R::per_output, "also each output, not only the mean"},
       {"prefix", &R::prefix, kPrefix},
       {"suffix", &R::suffix, kSuffix}});
}

void add_ranking(Targets& targets) {
  constexpr const char* kListInput = "scores [N, items] in the batch";
  constexpr const char* kListTarget = "relevances [N, items] in the batch";
  constexpr const char* kTopk = "for which k: only the k items with the highest scores count";
  using R = RankingCallbackOptions;
  add_metric<RankingCallback, R>(targets, "RankingCallback",
                                 "Metrics of lists that are ordered by score.",
                                 {{"input_key", &R::input_key, kListInput},
                                  {"target_key", &R::target_key, kListTarget},
                                  {"metrics", &R::metrics, "of hitrate, mrr, map, ndcg, any_hit"},
                                  {"topk", &R::topk, kTopk},
                                  {"prefix", &R::prefix, kPrefix},
                                  {"suffix", &R::suffix, kSuffix}});
  using T = TopkCallbackOptions;
  const std::vector<Field<T>> fields = {{"input_key", &T::input_key, kListInput},
                                        {"target_key", &T::target_key, kListTarget},
                                        {"topk", &T::topk, kTopk},
                                        {"prefix", &T::prefix, kPrefix},
                                        {"suffix", &T::suffix, kSuffix}};
  add_metric<HitrateCallback>(targets, "HitrateCallback",
                              "hitrate: the share of relevant items among the first k.", fields);
  add_metric<MRRCallback>(targets, "MRRCallback", "mrr: 1 / rank of the first relevant item.",
                          fields);
  add_metric<MAPCallback>(targets, "MAPCallback", "map: the mean average precision.", fields);
  add_metric<NDCGCallback>(targets, "NDCGCallback",
                           "ndcg: the discounted gain, compared with the best order.", fields);
}

void add_embeddings(Targets& targets) {
  const char* const embeddings = "the model's outputs [N, size] in the batch";
  const char* const is_query = "[N], 1 for a query, 0 for a sample of the gallery";
  const char* const topk = "for which k";
  using C = CmcCallbackOptions;
  add_metric<CmcCallback, C>(targets, "CmcCallback",
                             "cmc01: how often the nearest sample has the label of a query.",
                             {{"embeddings_key", &C::embeddings_key, embeddings},
                              {"labels_key", &C::labels_key, kTarget},
                              {"is_query_key", &C::is_query_key, is_query},
                              {"topk", &C::topk, topk},
                              {"prefix", &C::prefix, kPrefix},
                              {"suffix", &C::suffix, kSuffix}});
  using R = ReidCmcCallbackOptions;
  add_metric<ReidCmcCallback, R>(targets, "ReidCmcCallback",
                                 "cmc01 of persons, without images by the query's own camera.",
                                 {{"embeddings_key", &R::embeddings_key, embeddings},
                                  {"pids_key", &R::pids_key, "who is on the image, [N]"},
                                  {"cids_key", &R::cids_key, "the camera, [N]"},
                                  {"is_query_key", &R::is_query_key, is_query},
                                  {"topk", &R::topk, topk},
                                  {"prefix", &R::prefix, kPrefix},
                                  {"suffix", &R::suffix, kSuffix}});
}

void add_others(Targets& targets) {
  using R = RunningMeanCallbackOptions;
  add_metric<RunningMeanCallback, R>(
      targets, "RunningMeanCallback", "running_loss: a mean over the last batches.",
      {{"metrics", &R::metrics, "metrics of batches"},
       {"window", &R::window, "over how many batches"},
       {"train_only", &R::train_only, "not in passes that only evaluate"}});
  using D = DefaultMetricCallbackOptions;
  add_metric<DefaultMetricCallback, D>(
      targets, "DefaultMetricCallback", "The usual metric of the criterion, accuracy for example.",
      {{"input_key", &D::input_key, "the model's outputs in the batch"},
       {"target_key", &D::target_key, "the expected outputs in the batch"}});
}

}  // namespace

void add_metric_callbacks(Targets& targets) {
  add_classification(targets);
  add_multilabel(targets);
  add_probability(targets);
  add_segmentation(targets);
  add_regression(targets);
  add_ranking(targets);
  add_embeddings(targets);
  add_others(targets);
}

}  // namespace lockstep::recipe

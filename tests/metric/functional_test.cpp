#include "lockstep/metric/functional.h"

#include "lockstep/base/error.h"
#include "tests/metric/golden.h"

namespace lockstep::metric {
namespace {

TEST(Functional, ClassesAreThoseOfTheGoldens) {
  const auto& set = golden().at("labelled")[1];
  const torch::Tensor scores = matrix_of<float>(set.at("scores"));
  const torch::Tensor labels = vector_of<std::int64_t>(set.at("labels"));
  expect_near(accuracy(scores, labels), set.at("topk")[0], "accuracy");
  expect_near(accuracy(scores, labels, 3), set.at("topk")[2], "accuracy03");
  const auto& macro = set.at("precision_recall").at("_macro");
  expect_near(precision(scores, labels, 10), macro[0], "precision");
  expect_near(recall(scores, labels, 10), macro[1], "recall");
  expect_near(f1(scores, labels, 10), macro[2], "f1");
  expect_near(auc(scores, labels), set.at("auc").at("_macro"), "auc");
  EXPECT_TRUE(
      confusion_matrix(scores, labels, 10).equal(matrix_of<std::int64_t>(set.at("confusion"))));
}

// Class 0: precision 1, recall 1/2. Class 1: precision 1/2, recall 1. Class 2 is not there.
TEST(Functional, FBetaWeightsRecall) {
  const torch::Tensor guess = torch::tensor({0, 1, 1}), labels = torch::tensor({0, 0, 1});
  EXPECT_DOUBLE_EQ(fbeta(guess, labels, {.num_classes = 3}), f1(guess, labels, 3));
  EXPECT_DOUBLE_EQ(fbeta(guess, labels, {.num_classes = 3, .beta = 2}),
                   (5 * 0.5 / 4.5 + 5 * 0.5 / 3) / 3);
  EXPECT_THROW(fbeta(guess, labels, {.num_classes = 3, .beta = 0}), ConfigError);
}

// The nearest to 2 is 3, which has another label, and the second nearest is 0.
TEST(Functional, EmbeddingsAreThoseOfTheClass) {
  const torch::Tensor points = torch::tensor({{2.0F}, {0.0F}, {3.0F}});
  const torch::Tensor targets = torch::tensor({{1, 1}, {1, 0}, {2, 0}}, torch::kInt64);
  EXPECT_EQ(cmc(points, targets), 0);
  EXPECT_EQ(cmc(points, targets, 2), 1);
}

TEST(Functional, BinaryAndMultilabelAreThoseOfTheGoldens) {
  const auto& set = catalogue().at("binary");
  const torch::Tensor logits = vector_of<float>(set.at("logits"));
  const torch::Tensor targets = vector_of<std::int64_t>(set.at("targets"));
  for (const auto& at : set.at("thresholds")) {
    const BinaryThreshold threshold{.threshold = at.at("threshold")};
    expect_near(binary_accuracy(logits, targets, threshold), at.at("accuracy"), "accuracy");
    expect_near(binary_precision(logits, targets, threshold), at.at("ratios")[0], "precision");
    expect_near(binary_recall(logits, targets, threshold), at.at("ratios")[1], "recall");
    expect_near(binary_f1(logits, targets, threshold), at.at("ratios")[2], "f1");
  }
  expect_near(log_loss(logits, targets), set.at("log_loss"), "log loss");
  EXPECT_NEAR(calibration_error(logits, targets, {.bins = 10, .prefix = "x"}), set.at("ece10"),
              1e-6);
  const auto& many = catalogue().at("multilabel");
  expect_near(multilabel_accuracy(matrix_of<float>(many.at("logits")),
                                  matrix_of<std::int64_t>(many.at("targets")),
                                  {.threshold = many.at("threshold")}),
              many.at("accuracy"), "multilabel");
  EXPECT_THROW(multilabel_accuracy(logits, targets), DataError);
}

TEST(Functional, MapsAreThoseOfTheGoldens) {
  const auto& set = catalogue().at("maps")[0];
  const torch::Tensor scores = tensor_of_lists<float>(set.at("scores"));
  const torch::Tensor targets = tensor_of_lists<std::int64_t>(set.at("targets"));
  const SegmentationOptions options{.num_classes = 3, .prefix = "x", .suffix = "y"};
  const auto& macro = set.at("overlaps").at("_macro");
  expect_near(iou(scores, targets, options), macro.at("iou"), "iou");
  expect_near(dice(scores, targets, options), macro.at("dice"), "dice");
  expect_near(tversky(scores, targets, {.alpha = 0.7, .maps = options}), macro.at("tversky"), "t");
  expect_near(trevsky(scores, targets, {.alpha = 0.7, .maps = options}), macro.at("tversky"), "t");
  expect_near(pixel_accuracy(scores, targets, options), set.at("accuracy"), "pixels");
  expect_near(
      evaluate(IoU({.num_classes = 3, .per_class = true}), scores, targets).at("iou/class_02"),
      set.at("overlaps").at("class").at("iou")[2], "class");
}

TEST(Functional, NumbersAndListsAreThoseOfTheGoldens) {
  const auto& set = catalogue().at("numbers")[1];
  const torch::Tensor p = vector_of<float>(set.at("outputs")),
                      y = vector_of<float>(set.at("targets"));
  const auto expect = [&](double value, const char* name) {
    expect_near(value, set.at("columns").at(name)[0], name);
  };
  expect(mae(p, y), "mae");
  expect(mse(p, y), "mse");
  expect(rmse(p, y), "rmse");
  expect(r2(p, y), "r2");
  expect(explained_variance(p, y), "explained_variance");
  expect(pearson(p, y), "pearson");
  EXPECT_NEAR(mape(p, y) / set.at("columns").at("mape")[0].get<double>(), 1, 1e-12);

  const auto& lists = catalogue().at("ranked")[0];
  const torch::Tensor scores = matrix_of<float>(lists.at("scores"));
  const torch::Tensor relevances = matrix_of<std::int64_t>(lists.at("relevances"));
  const auto& at = lists.at("k").at("3");
  EXPECT_NEAR(hitrate(scores, relevances, 3), at.at("hitrate"), 1e-6);
  EXPECT_NEAR(mrr(scores, relevances, 3), at.at("mrr"), 1e-6);
  EXPECT_NEAR(mean_average_precision(scores, relevances, 3), at.at("map"), 1e-6);
  EXPECT_NEAR(ndcg(scores, relevances, 3), at.at("ndcg"), 1e-12);
}

}  // namespace
}  // namespace lockstep::metric

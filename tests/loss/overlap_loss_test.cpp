#include "lockstep/loss/overlap_loss.h"

#include <gmock/gmock.h>

#include "tests/loss/golden.h"

namespace lockstep {
namespace {

using namespace testing;
using ::testing::HasSubstr;

OverlapLossOptions read_overlap(const nlohmann::json& options) {
  const std::string name = options.value("probabilities", "softmax");
  OverlapLossOptions read{.smooth = options.value("smooth", 1e-5),
                          .batch = options.value("batch", false),
                          .weight = options.value("weight", std::vector<double>())};
  if (name == "sigmoid") read.probabilities = Probabilities::kSigmoid;
  if (name == "none") read.probabilities = Probabilities::kNone;
  if (options.contains("ignore_index")) {
    read.ignore_index = options["ignore_index"].get<std::int64_t>();
  }
  return read;
}

TEST(DiceLoss, IsItsFormula) {
  expect_golden_losses("DiceLoss", [](const auto& json) { return DiceLoss(read_overlap(json)); });
}

TEST(IoULoss, IsItsFormula) {
  expect_golden_losses("IoULoss", [](const auto& json) { return IoULoss(read_overlap(json)); });
}

TEST(TverskyLoss, IsItsFormula) {
  expect_golden_losses("TverskyLoss", [](const auto& json) {
    return TverskyLoss(TverskyLossOptions{.overlap = read_overlap(json),
                                          .false_positives = json["false_positives"],
                                          .false_negatives = json["false_negatives"],
                                          .gamma = json.value("gamma", 1.0)});
  });
}

TEST(OverlapLoss, OfAPerfectPredictionIsZero) {
  const auto classes = torch::randint(3, {2, 4, 4});
  const auto scores = torch::one_hot(classes, 3).movedim(-1, 1).to(torch::kFloat32) * 1000;
  EXPECT_NEAR(DiceLoss()->forward(scores, classes).item<double>(), 0, 1e-6);
  EXPECT_NEAR(IoULoss()->forward(scores, classes).item<double>(), 0, 1e-6);
  EXPECT_GT(DiceLoss()->forward(-scores, classes).item<double>(), 0.5);
}

// The mean of the losses of samples is exact for any shards; one number for all of them is not.
TEST(OverlapLoss, OfPartsIsThatOfTheWholeUnlessItIsOfTheBatch) {
  torch::manual_seed(3);
  const auto scores = torch::randn({5, 3, 4, 4}, torch::kFloat64);
  const auto classes = torch::randint(3, {5, 4, 4});
  const DiceLoss by_sample;
  EXPECT_NEAR(loss_of_halves(by_sample, scores, classes),
              by_sample->forward(scores, classes).item<double>(), 1e-12);
  EXPECT_FALSE(by_sample->mixes_samples());
  const DiceLoss by_batch(OverlapLossOptions{.batch = true});
  EXPECT_GT(std::abs(loss_of_halves(by_batch, scores, classes) -
                     by_batch->forward(scores, classes).item<double>()),
            1e-4);
  EXPECT_TRUE(by_batch->mixes_samples());
}

TEST(OverlapLoss, OfASampleWithoutPixelsThatCountIsZero) {
  const auto scores = torch::randn({1, 3, 4}).requires_grad_();
  const auto loss = TverskyLoss(TverskyLossOptions{.overlap = {.ignore_index = 255}, .gamma = 2})
                        ->forward(scores, torch::full({1, 4}, 255));
  EXPECT_NEAR(loss.item<double>(), 0, 1e-3);
  loss.backward();
  EXPECT_TRUE(scores.grad().isfinite().all().item<bool>());
}

TEST(OverlapLoss, RefusesOtherShapesAndValues) {
  const auto error = [](const torch::Tensor& scores, const torch::Tensor& targets,
                        const OverlapLossOptions& options) {
    return loss_error([&] { DiceLoss(options)->forward(scores, targets); });
  };
  EXPECT_EQ(error(torch::ones({2, 3}), torch::ones({2}, torch::kInt64), {}),
            "DiceLoss: expected scores [N, C, …] and classes [N, …], or floating-point targets of "
            "the same shape, got Float [2, 3] and Long [2]");
  EXPECT_THAT(error(torch::ones({2, 3, 4}), torch::ones({2, 4}, torch::kInt64),
                    {.probabilities = Probabilities::kSigmoid}),
              HasSubstr("and floating-point targets of the same shape, got"));
  EXPECT_EQ(error(torch::ones({2, 3, 4}), torch::ones({2, 3, 4}), {.weight = {1, 2}}),
            "DiceLoss: weight: expected 3 numbers, one for each class, got 2");
  EXPECT_EQ(loss_error([] { IoULoss(OverlapLossOptions{.smooth = -1}); }),
            "IoULoss: smooth: expected a number >= 0, got -1");
  EXPECT_EQ(loss_error([] { TverskyLoss(TverskyLossOptions{.gamma = 0}); }),
            "TverskyLoss: gamma: expected a number > 0, got 0");
}

TEST(OverlapLoss, RanksCompareItsOptions) {
  EXPECT_EQ(c10::str(*TverskyLoss(TverskyLossOptions{.overlap = {.ignore_index = 7}})),
            "TverskyLoss(probabilities=softmax, smooth=1e-05, batch=false, weight=[], "
            "ignore_index=7, false_positives=0.3, false_negatives=0.7, gamma=1)");
}

}  // namespace
}  // namespace lockstep

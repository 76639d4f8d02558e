#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/recipe/targets.h"
#include "tests/recipe/support.h"

namespace lockstep::recipe {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::node;

double loss(const std::string& criterion, const torch::Tensor& output,
            const torch::Tensor& target) {
  return targets().criterions.make(node(criterion))(output, target).item<double>();
}

TEST(Criterions, OptionsReachTheLoss) {
  const torch::Tensor scores = torch::tensor({{2.0, -1.0}, {0.5, 1.5}});
  const torch::Tensor classes = torch::tensor({0, 1});
  namespace F = torch::nn::functional;
  EXPECT_DOUBLE_EQ(loss("CrossEntropyLoss", scores, classes),
                   F::cross_entropy(scores, classes).item<double>());
  EXPECT_FLOAT_EQ(
      loss("{CrossEntropyLoss: {weight: [1, 3], label_smoothing: 0.1}}", scores, classes),
      F::cross_entropy(
          scores, classes,
          F::CrossEntropyFuncOptions().weight(torch::tensor({1.0, 3.0})).label_smoothing(0.1))
          .item<double>());
  const torch::Tensor x = torch::tensor({0.0, 3.0});
  const torch::Tensor y = torch::tensor({0.5, 0.0});
  EXPECT_DOUBLE_EQ(loss("MSELoss", x, y), (0.25 + 9) / 2);
  EXPECT_DOUBLE_EQ(loss("L1Loss", x, y), 1.75);
  EXPECT_DOUBLE_EQ(loss("{SmoothL1Loss: {beta: 2}}", x, y), (0.5 * 0.25 / 2 + 2) / 2);
  EXPECT_DOUBLE_EQ(loss("{HuberLoss: {delta: 2}}", x, y), (0.5 * 0.25 + 2 * (3 - 1)) / 2);
  // Both rows of the first kind are opposite to both of the second.
  const torch::Tensor pair = torch::tensor({{1.0}, {-1.0}});
  EXPECT_NEAR(loss("{NTXentLoss: {temperature: 2}}", pair, pair), std::log(1 + 2 * std::exp(-1.0)),
              1e-6);
  EXPECT_NEAR(loss("BCEWithLogitsLoss", torch::zeros({2}), torch::ones({2})), std::log(2), 1e-6);
  EXPECT_NEAR(loss("{BCEWithLogitsLoss: {pos_weight: 2}}", torch::zeros({2}), torch::ones({2})),
              2 * std::log(2), 1e-6);
  EXPECT_NEAR(loss("BCELoss", torch::full({2}, 0.5), torch::ones({2})), std::log(2), 1e-6);
  EXPECT_NEAR(loss("NLLLoss", torch::log_softmax(scores, 1), classes),
              loss("CrossEntropyLoss", scores, classes), 1e-6);
}

TEST(Criterions, OptionsReachLockstepsOwnLosses) {
  const torch::Tensor scores = torch::tensor({{2.0, -1.0}, {0.5, 1.5}});
  const torch::Tensor classes = torch::tensor({0, 1});
  EXPECT_NEAR(loss("{FocalLoss: {gamma: 0}}", scores, classes),
              loss("CrossEntropyLoss", scores, classes), 1e-6);
  EXPECT_NEAR(
      loss("{BinaryFocalLoss: {gamma: 0, alpha: 0.25}}", torch::zeros({2}), torch::ones({2})),
      0.25 * std::log(2), 1e-6);
  // One class, and one pixel that is right with the probability 1/2.
  const torch::Tensor half = torch::full({1, 1, 1}, 0.5);
  const torch::Tensor one = torch::ones({1, 1, 1});
  EXPECT_NEAR(loss("{DiceLoss: {probabilities: none, smooth: 0}}", half, one), 1 - 2.0 / 3, 1e-6);
  EXPECT_NEAR(loss("{IoULoss: {probabilities: none, smooth: 0}}", half, one), 0.5, 1e-6);
  EXPECT_NEAR(
      loss("{TverskyLoss: {probabilities: none, smooth: 0, false_negatives: 3}}", half, one), 0.75,
      1e-6);
  const torch::Tensor rows = torch::tensor({{0.0}, {1.0}});
  EXPECT_NEAR(loss("{ContrastiveLoss: {margin: 3}}", rows, classes), 2, 1e-6);
  EXPECT_NEAR(loss("{MarginLoss: {beta: 2, alpha: 0.5}}", rows, classes), 1.5, 1e-6);
  const torch::Tensor three = torch::tensor({{0.0}, {1.0}, {3.0}});
  const torch::Tensor labels = torch::tensor({0, 0, 1});
  EXPECT_NEAR(loss("{TripletLoss: {margin: 2}}", three, labels), 0.5, 1e-6);
  EXPECT_NEAR(loss("{TripletLoss: {margin: 2, mining: all}}", three, labels), 1, 1e-6);
  EXPECT_NEAR(loss("{SupervisedContrastiveLoss: {temperature: 1}}", three.add(1), labels),
              std::log(2), 1e-6);
  EXPECT_NEAR(loss("{BarlowTwinsLoss: {eps: 1e-12}}", rows, -rows), 4, 1e-6);
  EXPECT_NEAR(loss("KLDivLoss", torch::zeros({2, 2}), torch::full({2, 2}, 0.5)), std::log(0.5),
              1e-6);
  EXPECT_EQ(targets()
                .criterions.make(node("{CrossEntropyLoss: {over_samples: true}}"))
                .over(scores, classes),
            mean_over_samples());
  EXPECT_TRUE(targets().criterions.make(node("BarlowTwinsLoss")).mixes_samples());
  EXPECT_FALSE(targets().criterions.make(node("DiceLoss")).mixes_samples());
  EXPECT_EQ(targets().criterions.make(node("FocalLoss")).over(scores, torch::tensor({-100, 1})),
            mean_over(1));
}

TEST(Criterions, AValueOutOfRangeIsRefused) {
  EXPECT_THAT(
      error_of([] { targets().criterions.make(node("{CrossEntropyLoss: {label_smoothing: 2}}")); }),
      HasSubstr("label_smoothing: expected a number in [0, 1], got 2"));
}

}  // namespace
}  // namespace lockstep::recipe

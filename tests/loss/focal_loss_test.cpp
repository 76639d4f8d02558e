#include "lockstep/loss/focal_loss.h"

#include "tests/loss/golden.h"

namespace lockstep {
namespace {

using namespace testing;

TEST(FocalLoss, IsThatOfThePaper) {
  expect_golden_losses("FocalLoss", [](const nlohmann::json& options) {
    return FocalLoss(
        FocalLossOptions{.gamma = options.value("gamma", 2.0),
                         .weight = options.value("weight", std::vector<double>()),
                         .ignore_index = options.value("ignore_index", std::int64_t{-100})});
  });
}

TEST(BinaryFocalLoss, IsThatOfThePaper) {
  expect_golden_losses("BinaryFocalLoss", [](const nlohmann::json& options) {
    BinaryFocalLossOptions read{.gamma = options.value("gamma", 2.0)};
    if (options.contains("alpha")) read.alpha = options["alpha"].get<double>();
    return BinaryFocalLoss(read);
  });
}

TEST(FocalLoss, WithoutFocusIsCrossEntropy) {
  const auto scores = torch::randn({5, 3}, torch::kFloat64);
  const auto classes = torch::tensor({0, 2, 1, 1, 0});
  EXPECT_NEAR(FocalLoss(FocalLossOptions{.gamma = 0})->forward(scores, classes).item<double>(),
              torch::nn::functional::cross_entropy(scores, classes).item<double>(), 1e-12);
}

TEST(FocalLoss, OfPartsIsThatOfTheWhole) {
  const auto scores = torch::randn({5, 3, 4}, torch::kFloat64);
  const auto classes = torch::randint(3, {5, 4});
  classes.narrow(0, 0, 2).fill_(-100);
  classes[0][0] = 1;
  const FocalLoss loss;
  EXPECT_EQ(loss->over(scores, classes), mean_over((classes != -100).sum().item<double>()));
  EXPECT_NEAR(loss_of_halves(loss, scores, classes), loss->forward(scores, classes).item<double>(),
              1e-12);
  EXPECT_FALSE(loss->mixes_samples());
}

TEST(FocalLoss, OfNothingIsZero) {
  const auto scores = torch::randn({2, 3}).requires_grad_();
  const auto loss = FocalLoss()->forward(scores, torch::full({2}, -100));
  EXPECT_EQ(loss.item<double>(), 0);
  loss.backward();
  EXPECT_EQ(scores.grad().abs().sum().item<double>(), 0);
}

// The probability of the right class is exactly 1 in float.
TEST(FocalLoss, OfACertainAnswerHasAFiniteGradient) {
  for (const double gamma : {0.0, 0.5, 1.0, 2.0}) {
    const auto scores = torch::tensor({{100.0F, 0.0F}}).requires_grad_();
    FocalLoss(FocalLossOptions{.gamma = gamma})->forward(scores, torch::tensor({0})).backward();
    EXPECT_TRUE(scores.grad().isfinite().all().item<bool>()) << gamma;
    const auto single = torch::tensor({100.0F}).requires_grad_();
    BinaryFocalLoss(BinaryFocalLossOptions{.gamma = gamma})
        ->forward(single, torch::ones({1}))
        .backward();
    EXPECT_TRUE(single.grad().isfinite().all().item<bool>()) << gamma;
  }
}

TEST(FocalLoss, RefusesOtherShapesAndValues) {
  EXPECT_EQ(loss_error([] {
              FocalLoss()->forward(torch::ones({2, 3}), torch::ones({2, 3}));
            }),
            "FocalLoss: expected scores [N, C, …] and classes [N, …], got Float [2, 3] and Float "
            "[2, 3]");
  EXPECT_EQ(
      loss_error([] {
        BinaryFocalLoss()->forward(torch::ones({2, 3}), torch::ones({2}));
      }),
      "BinaryFocalLoss: expected scores and floating-point targets of one shape, got Float [2, 3] "
      "and Float [2]");
  EXPECT_EQ(loss_error([] { FocalLoss(FocalLossOptions{.gamma = -1}); }),
            "FocalLoss: gamma: expected a number >= 0, got -1");
  EXPECT_EQ(loss_error([] { BinaryFocalLoss(BinaryFocalLossOptions{.alpha = 2}); }),
            "BinaryFocalLoss: alpha: expected a number in [0, 1], got 2");
}

TEST(FocalLoss, RanksCompareItsOptions) {
  EXPECT_EQ(c10::str(*FocalLoss(FocalLossOptions{.weight = {1, 2.5}})),
            "FocalLoss(gamma=2, weight=[1, 2.5], ignore_index=-100)");
  EXPECT_EQ(c10::str(*BinaryFocalLoss()), "BinaryFocalLoss(gamma=2, alpha=none)");
}

}  // namespace
}  // namespace lockstep

#include "lockstep/loss/embedding_loss.h"

#include "lockstep/compute/autocast.h"
#include "tests/loss/golden.h"

namespace lockstep {
namespace {

using namespace testing;
using nlohmann::json;

TEST(ContrastiveLoss, IsThatOfThePaper) {
  expect_golden_losses("ContrastiveLoss", [](const json& options) {
    return ContrastiveLoss(ContrastiveLossOptions{.margin = options.value("margin", 1.0)});
  });
}

TEST(TripletLoss, IsThatOfThePaper) {
  expect_golden_losses("TripletLoss", [](const json& options) {
    const bool all = options.value("mining", "hard") == "all";
    return TripletLoss(
        TripletLossOptions{.margin = options.value("margin", 0.3),
                           .mining = all ? TripletMining::kAll : TripletMining::kHard});
  });
}

TEST(MarginLoss, IsThatOfThePaper) {
  expect_golden_losses("MarginLoss", [](const json& options) {
    return MarginLoss(MarginLossOptions{.beta = options.value("beta", 1.0),
                                        .alpha = options.value("alpha", 0.2)});
  });
}

TEST(SupervisedContrastiveLoss, IsThatOfThePaper) {
  expect_golden_losses("SupervisedContrastiveLoss", [](const json& options) {
    return SupervisedContrastiveLoss(
        SupervisedContrastiveLossOptions{.temperature = options.value("temperature", 0.1)});
  });
}

TEST(BarlowTwinsLoss, IsThatOfThePaper) {
  expect_golden_losses("BarlowTwinsLoss", [](const json& options) {
    return BarlowTwinsLoss(BarlowTwinsLossOptions{
        .off_diagonal = options.value("off_diagonal", 0.005), .eps = options.value("eps", 1e-5)});
  });
}

// A batch with one sample, and one in which no label occurs twice, or only one label occurs.
TEST(EmbeddingLoss, OfBatchesWithoutPairsIsFinite) {
  const auto expect_finite = [](const auto& loss) {
    for (const torch::Tensor& labels :
         {torch::tensor({1}), torch::tensor({0, 1, 2}), torch::tensor({1, 1, 1})}) {
      // Equal rows have no distance.
      const auto rows = torch::ones({labels.size(0), 4}).requires_grad_();
      const torch::Tensor value = loss->forward(rows, labels);
      EXPECT_TRUE(std::isfinite(value.template item<double>())) << c10::str(*loss) << labels;
      value.backward();
      EXPECT_TRUE(rows.grad().isfinite().all().template item<bool>()) << c10::str(*loss) << labels;
    }
    EXPECT_TRUE(loss->mixes_samples());
    EXPECT_EQ(loss->over({}, {}), mean_over_samples());
  };
  expect_finite(ContrastiveLoss());
  expect_finite(TripletLoss());
  expect_finite(TripletLoss(TripletLossOptions{.mining = TripletMining::kAll}));
  expect_finite(MarginLoss());
  expect_finite(SupervisedContrastiveLoss());
  const auto rows = torch::ones({1, 4}).requires_grad_();
  BarlowTwinsLoss()->forward(rows, rows.detach()).backward();
  EXPECT_TRUE(rows.grad().isfinite().all().item<bool>());
}

// Products of matrices have 16 bits then, so values differ by some parts in a hundred.
TEST(EmbeddingLoss, RunsInMixedPrecision) {
  torch::manual_seed(3);
  const torch::Tensor rows = torch::randn({8, 4}), other = torch::randn({8, 4});
  const torch::Tensor labels = torch::tensor({0, 0, 1, 1, 2, 2, 3, 3});
  const auto expect_near = [&](const auto& loss, const torch::Tensor& targets) {
    const auto exact = loss->forward(rows, targets).template item<double>();
    const torch::Tensor embeddings = rows.clone().requires_grad_();
    torch::Tensor value;
    {
      const AutocastScope scope("bf16", torch::kCPU);
      value = loss->forward(embeddings, targets);
    }
    EXPECT_EQ(value.scalar_type(), torch::kFloat32) << c10::str(*loss);
    EXPECT_NEAR(value.template item<double>(), exact, 0.2) << c10::str(*loss);
    value.backward();
    EXPECT_TRUE(embeddings.grad().isfinite().all().template item<bool>()) << c10::str(*loss);
  };
  expect_near(ContrastiveLoss(), labels);
  expect_near(TripletLoss(), labels);
  expect_near(TripletLoss(TripletLossOptions{.mining = TripletMining::kAll}), labels);
  expect_near(MarginLoss(), labels);
  expect_near(SupervisedContrastiveLoss(), labels);
  expect_near(BarlowTwinsLoss(), other);
}

TEST(EmbeddingLoss, RefusesOtherShapesAndValues) {
  EXPECT_EQ(loss_error([] {
              TripletLoss()->forward(torch::ones({2, 3}), torch::ones({2}));
            }),
            "TripletLoss: expected embeddings [N, D] and integer labels [N], got Float [2, 3] and "
            "Float [2]");
  EXPECT_EQ(loss_error([] {
              BarlowTwinsLoss()->forward(torch::ones({2, 3}), torch::ones({2}));
            }),
            "BarlowTwinsLoss: expected two projections of one shape [N, D], got Float [2, 3] and "
            "Float [2]");
  EXPECT_EQ(loss_error([] { ContrastiveLoss(ContrastiveLossOptions{.margin = 0}); }),
            "ContrastiveLoss: margin: expected a number > 0, got 0");
  EXPECT_EQ(loss_error([] { TripletLoss(TripletLossOptions{.margin = -1}); }),
            "TripletLoss: margin: expected a number >= 0, got -1");
  EXPECT_EQ(loss_error([] { MarginLoss(MarginLossOptions{.beta = 0}); }),
            "MarginLoss: beta: expected a number > 0, got 0");
  EXPECT_EQ(loss_error([] {
              SupervisedContrastiveLoss(SupervisedContrastiveLossOptions{.temperature = 0});
            }),
            "SupervisedContrastiveLoss: temperature: expected a number > 0, got 0");
  EXPECT_EQ(loss_error([] { BarlowTwinsLoss(BarlowTwinsLossOptions{.off_diagonal = -1}); }),
            "BarlowTwinsLoss: off_diagonal: expected a number >= 0, got -1");
}

TEST(EmbeddingLoss, RanksCompareItsOptions) {
  EXPECT_EQ(c10::str(*TripletLoss()), "TripletLoss(margin=0.3, mining=hard)");
  EXPECT_EQ(c10::str(*MarginLoss()), "MarginLoss(beta=1, alpha=0.2)");
  EXPECT_EQ(c10::str(*ContrastiveLoss()), "ContrastiveLoss(margin=1)");
  EXPECT_EQ(c10::str(*SupervisedContrastiveLoss()), "SupervisedContrastiveLoss(temperature=0.1)");
  EXPECT_EQ(c10::str(*BarlowTwinsLoss()), "BarlowTwinsLoss(off_diagonal=0.005, eps=1e-05)");
}

}  // namespace
}  // namespace lockstep

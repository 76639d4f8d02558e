#include "lockstep/metric/scores.h"

#include "lockstep/base/error.h"
#include "tests/metric/golden.h"

namespace lockstep::metric {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(ScoreLimit, IsTheScoreWithThatProbability) {
  EXPECT_EQ(score_limit(ScoreKind::kLogits, 0.5, "m"), 0);
  EXPECT_EQ(score_limit(ScoreKind::kProbabilities, 0.3, "m"), 0.3);
  EXPECT_NEAR(score_limit(ScoreKind::kLogits, 0.9, "m"), std::log(9.0), 1e-15);
  EXPECT_EQ(score_limit(ScoreKind::kLogits, 0, "m"), -HUGE_VAL);
  EXPECT_EQ(score_limit(ScoreKind::kLogits, 1, "m"), HUGE_VAL);
  for (const double wrong : {-0.1, 1.5, std::nan("")}) {
    EXPECT_THAT([&] { score_limit(ScoreKind::kLogits, wrong, "m"); },
                ThrowsMessage<ConfigError>(HasSubstr("m: threshold: expected a probability")));
  }
}

TEST(ClassProbabilities, AreThoseOfSoftmaxAndSigmoid) {
  const auto& set = catalogue().at("classes");
  const torch::Tensor expected = matrix_of<double>(set.at("probabilities"));
  const auto read =
      class_probabilities(matrix_of<float>(set.at("logits")),
                          vector_of<std::int64_t>(set.at("labels")), ScoreKind::kLogits, "m");
  EXPECT_LT((read.values - expected).abs().max().item<double>(), 1e-14);
  EXPECT_LT((read.logs - expected.log()).abs().max().item<double>(), 1e-13);

  const auto& pair = catalogue().at("binary");
  const torch::Tensor ones = vector_of<double>(pair.at("probabilities"));
  for (const bool column : {false, true}) {
    torch::Tensor logits = vector_of<float>(pair.at("logits"));
    if (column) logits = logits.unsqueeze(1);
    const auto both = class_probabilities(logits, vector_of<std::int64_t>(pair.at("targets")),
                                          ScoreKind::kLogits, "m");
    EXPECT_LT((both.values.select(1, 1) - ones).abs().max().item<double>(), 1e-14);
    EXPECT_LT((both.values.sum(1) - 1).abs().max().item<double>(), 1e-14);
  }
}

TEST(ClassProbabilities, LogarithmsOfExtremesAreFinite) {
  const auto far = class_probabilities(torch::tensor({800.0, -800.0}), torch::tensor({0, 1}),
                                       ScoreKind::kLogits, "m");
  EXPECT_EQ(far.logs[0][0].item<double>(), -800);
  EXPECT_EQ(far.logs[1][1].item<double>(), -800);
  const auto zero = class_probabilities(torch::tensor({{0.0, 1.0}}), torch::tensor({0}),
                                        ScoreKind::kProbabilities, "m");
  EXPECT_NEAR(zero.logs[0][0].item<double>(), -36.04, 0.01);
}

TEST(ClassProbabilities, RefusesWhatCannotBe) {
  const auto error = [](const torch::Tensor& outputs, const torch::Tensor& targets) {
    return [=] { class_probabilities(outputs, targets, ScoreKind::kProbabilities, "m"); };
  };
  EXPECT_THAT(error(torch::tensor({{0.5, 1.5}}), torch::tensor({0})),
              ThrowsMessage<DataError>(HasSubstr("sample 0 is 1.5, expected a probability")));
  EXPECT_THAT(error(torch::tensor({0.5, std::nan("")}), torch::tensor({0, 1})),
              ThrowsMessage<DataError>(HasSubstr("sample 1 is nan")));
  EXPECT_THAT(error(torch::tensor({0.5, 0.5}), torch::tensor({0, 2})),
              ThrowsMessage<DataError>(HasSubstr("sample 1 is 2")));
  EXPECT_THROW(error(torch::rand({2, 3}), torch::tensor({0}))(), DataError);
}

}  // namespace
}  // namespace lockstep::metric

#include "lockstep/metric/confusion_matrix.h"

#include "lockstep/base/error.h"
#include "tests/metric/golden.h"

namespace lockstep::metric {
namespace {

TEST(ConfusionMatrix, CountsAsScikitLearn) {
  for (const auto& set : golden().at("labelled")) {
    const torch::Tensor scores = matrix_of<float>(set.at("scores"));
    ConfusionMatrix confusion({.num_classes = scores.size(1)});
    confusion.update(scores, vector_of<std::int64_t>(set.at("labels")));
    EXPECT_TRUE(torch::equal(confusion.counts(), matrix_of<std::int64_t>(set.at("confusion"))))
        << set.at("name");
  }
}

TEST(ConfusionMatrix, RowsAreTrueAndColumnsPredicted) {
  ConfusionMatrix confusion({.num_classes = 3});
  confusion.update(/*outputs=*/torch::tensor({2, 2, 0}), /*targets=*/torch::tensor({0, 0, 0}));
  EXPECT_TRUE(torch::equal(confusion.counts(), torch::tensor({{1, 0, 2}, {0, 0, 0}, {0, 0, 0}})));
  EXPECT_TRUE(torch::equal(confusion.values(), confusion.counts().to(torch::kFloat64)));
}

TEST(ConfusionMatrix, NormalizedDividesByTheRow) {
  ConfusionMatrix confusion({.num_classes = 3, .normalized = true});
  confusion.update(torch::tensor({2, 2, 0, 0, 1}), torch::tensor({0, 0, 0, 0, 1}));
  const auto expected =
      torch::tensor({{0.5, 0.0, 0.5}, {0.0, 1.0, 0.0}, {0.0, 0.0, 0.0}}, torch::kFloat64);
  EXPECT_TRUE(torch::equal(confusion.values(), expected));
  EXPECT_EQ(confusion.counts().sum().item<std::int64_t>(), 5);
}

TEST(ConfusionMatrix, YieldsNoNumbers) {
  const ConfusionMatrix confusion({.num_classes = 3});
  EXPECT_TRUE(confusion.names().empty());
  EXPECT_TRUE(confusion.compute().empty());
}

TEST(ConfusionMatrix, MergesExactly) {
  const auto& set = golden().at("labelled").at(1);
  const Batches batches{matrix_of<float>(set.at("scores")),
                        vector_of<std::int64_t>(set.at("labels"))};
  for (int ranks = 1; ranks <= 4; ++ranks) {
    std::vector<ConfusionMatrix> parts(ranks + 1, ConfusionMatrix({.num_classes = 10}));
    for (int i = 0; i < batches.size(); ++i) batches(parts[i % ranks], i);
    ConfusionMatrix merged({.num_classes = 10});
    merged.load_state(parts.back().state());
    for (int r = 0; r < ranks; ++r) merged.merge(parts[r].state());
    EXPECT_TRUE(torch::equal(merged.counts(), matrix_of<std::int64_t>(set.at("confusion"))));
  }
}

TEST(ConfusionMatrix, ResetForgets) {
  ConfusionMatrix confusion({.num_classes = 2});
  confusion.update(torch::tensor({1}), torch::tensor({0}));
  confusion.reset();
  EXPECT_EQ(confusion.counts().sum().item<std::int64_t>(), 0);
}

TEST(ConfusionMatrix, RefusesWhatDoesNotFit) {
  EXPECT_THROW(ConfusionMatrix(ConfusionMatrixOptions{}), ConfigError);
  ConfusionMatrix confusion({.num_classes = 3});
  EXPECT_THROW(confusion.update(torch::tensor({0, 3}), torch::tensor({0, 1})), DataError);
  EXPECT_THROW(confusion.update(torch::rand({2, 3}), torch::tensor({0, 3})), DataError);
  EXPECT_EQ(confusion.counts().sum().item<std::int64_t>(), 0);
  EXPECT_THAT([&] { confusion.merge(ConfusionMatrix({.num_classes = 5}).state()); },
              testing::ThrowsMessage<CheckpointError>(
                  testing::HasSubstr("expected Long [3, 3], found Long [5, 5]")));
}

}  // namespace
}  // namespace lockstep::metric

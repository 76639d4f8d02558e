#include "lockstep/metric/auc.h"

#include "lockstep/base/error.h"
#include "tests/metric/golden.h"

namespace lockstep::metric {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

void expect_golden(const Metrics& metrics, const nlohmann::json& expected) {
  expect_near(metrics.at("auc"), expected.at("_macro"), "auc");
  for (const char* average : {"_micro", "_macro", "_weighted"}) {
    expect_near(metrics.at(std::string("auc/") + average), expected.at(average), average);
  }
  for (std::size_t c = 0; c < expected.at("class").size(); ++c) {
    const std::string name = fmt::format("auc/class_{:02}", c);
    expect_near(metrics.at(name), expected.at("class")[c], name);
  }
}

TEST(AUC, IsWhatScikitLearnSays) {
  for (const auto& set : golden().at("labelled")) {
    SCOPED_TRACE(set.at("name").get<std::string>());
    const torch::Tensor scores = matrix_of<float>(set.at("scores"));
    AUC auc({.num_classes = scores.size(1), .per_class = true});
    auc.update(scores, vector_of<std::int64_t>(set.at("labels")));
    expect_golden(auc.compute(), set.at("auc"));
  }
}

TEST(AUC, TakesSeveralLabelsPerSample) {
  const auto& set = golden().at("multilabel");
  for (const auto type : {torch::kInt64, torch::kFloat32, torch::kBool}) {
    AUC auc({.num_classes = 4, .per_class = true});
    auc.update(matrix_of<float>(set.at("scores")), matrix_of<int>(set.at("positive")).to(type));
    expect_golden(auc.compute(), set.at("auc"));
  }
}

TEST(AUC, TakesOneScorePerSample) {
  const auto& set = golden().at("binary");
  const torch::Tensor scores = matrix_of<float>(set.at("scores"));
  const torch::Tensor positive = matrix_of<int>(set.at("positive"));
  AUC flat({.num_classes = 1, .per_class = true}), column({.num_classes = 1, .per_class = true});
  flat.update(scores.squeeze(1), positive.squeeze(1));
  column.update(scores, positive);
  expect_golden(flat.compute(), set.at("auc"));
  expect_same_bits(column.compute(), flat.compute());
}

TEST(AUC, NamesAreKnownBeforehand) {
  const AUC averages({.prefix = "a_", .suffix = "_b"});
  EXPECT_THAT(averages.names(),
              ElementsAre("a_auc_b", "a_auc_b/_micro", "a_auc_b/_macro", "a_auc_b/_weighted"));
  expect_names_match(averages);
  AUC per_class({.num_classes = 2, .per_class = true});
  per_class.update(torch::rand({4, 2}), torch::tensor({0, 1, 0, 1}));
  expect_names_match(per_class);
  EXPECT_THROW(AUC({.per_class = true}), ConfigError);
}

TEST(AUC, NothingIsNotANumberUnderEveryName) {
  AUC auc({.num_classes = 2, .per_class = true});
  expect_names_match(auc);
  for (const auto& [name, value] : auc.compute()) EXPECT_TRUE(std::isnan(value)) << name;
  // a single class cannot be compared with another one
  auc.update(torch::rand({3, 2}), torch::tensor({1, 1, 1}));
  const Metrics metrics = auc.compute();
  EXPECT_TRUE(std::isnan(metrics.at("auc")));
  EXPECT_TRUE(std::isnan(metrics.at("auc/_weighted")));
  EXPECT_FALSE(std::isnan(metrics.at("auc/_micro")));
}

TEST(AUC, LearnsTheClassesFromTheFirstBatchUntilReset) {
  AUC auc(AUCOptions{});
  auc.update(torch::rand({4, 3}), torch::tensor({0, 1, 2, 0}));
  EXPECT_THAT(
      [&] {
        auc.update(torch::rand({4, 2}), torch::tensor({0, 1, 1, 0}));
      },
      ThrowsMessage<DataError>(HasSubstr("expected scores of 3 classes, got 2")));
  auc.reset();
  auc.update(torch::tensor({{0.9, 0.1}, {0.1, 0.9}}), torch::tensor({0, 1}));
  EXPECT_EQ(auc.compute().at("auc"), 1);
}

TEST(AUC, BadInputIsNamedAndAddsNothing) {
  AUC auc({.num_classes = 2});
  EXPECT_THAT(
      [&] {
        auc.update(torch::tensor({{0.0, 1.0}, {std::nan(""), 1.0}}), torch::tensor({0, 1}));
      },
      ThrowsMessage<DataError>(HasSubstr("the score of class 0 is NaN in sample 1")));
  EXPECT_THROW(auc.update(torch::rand({2, 2}), torch::tensor({0, 2})), DataError);
  EXPECT_THAT(
      [&] {
        auc.update(torch::rand({2, 2}), torch::tensor({{0, 1}, {2, 1}}));
      },
      ThrowsMessage<DataError>(HasSubstr("sample 1 is 2, expected 0 or 1")));
  EXPECT_THAT(
      [&] {
        auc.update(torch::rand({2, 2}), torch::ones({2, 3}));
      },
      ThrowsMessage<DataError>(HasSubstr("expected the shape [2] or [2, 2], got [2, 3]")));
  EXPECT_THROW(auc.update(torch::rand({2}), torch::tensor({0, 1})), DataError);
  EXPECT_EQ(auc.state().get<torch::Tensor>("scores").size(0), 0);
  EXPECT_EQ(auc.state().get<torch::Tensor>("positive").size(0), 0);
}

TEST(AUC, MergesToTheBit) {
  for (const auto& set : golden().at("labelled")) {
    const Batches batches{matrix_of<float>(set.at("scores")),
                          vector_of<std::int64_t>(set.at("labels"))};
    const std::int64_t classes = batches.outputs.size(1);
    expect_merges_exactly([] { return AUC(AUCOptions{}); }, batches.size(), batches);
    expect_merges_exactly([&] { return AUC({.num_classes = classes, .per_class = true}); },
                          batches.size(), batches);
  }
}

TEST(AUC, StateOfOtherClassesIsRefused) {
  AUC two({.num_classes = 2});
  EXPECT_THAT([&] { two.load_state(AUC({.num_classes = 5}).state()); },
              ThrowsMessage<CheckpointError>(HasSubstr("num_classes: expected 2, found 5")));
  AUC learned(AUCOptions{});
  learned.update(torch::rand({2, 3}), torch::tensor({0, 1}));
  EXPECT_THROW(learned.merge(AUC({.num_classes = 5}).state()), CheckpointError);
  EXPECT_THROW(two.merge({{"num_classes", 2},
                          {"scores", torch::zeros({4, 2})},
                          {"positive", torch::zeros({3, 2}, torch::kUInt8)}}),
               CheckpointError);
}

}  // namespace
}  // namespace lockstep::metric

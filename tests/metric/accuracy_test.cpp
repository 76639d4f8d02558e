#include "lockstep/metric/accuracy.h"

#include "lockstep/base/error.h"
#include "tests/metric/golden.h"

namespace lockstep::metric {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

const double kNaN = std::nan("");

Metrics accuracy_of(const torch::Tensor& outputs, const torch::Tensor& targets,
                    AccuracyOptions options = {}) {
  Accuracy accuracy(std::move(options));
  accuracy.update(outputs, targets);
  return accuracy.compute();
}

TEST(Accuracy, CountsWhatAStableSortFinds) {
  for (const auto& set : golden().at("labelled")) {
    SCOPED_TRACE(set.at("name").get<std::string>());
    const torch::Tensor scores = matrix_of<float>(set.at("scores"));
    std::vector<std::int64_t> topk;
    for (std::int64_t k = 1; k <= scores.size(1); ++k) topk.push_back(k);
    for (const auto type : {torch::kFloat32, torch::kFloat64}) {
      const Metrics metrics =
          accuracy_of(scores.to(type), vector_of<std::int64_t>(set.at("labels")), {.topk = topk});
      for (const std::int64_t k : topk) {
        EXPECT_EQ(metrics.at(fmt::format("accuracy{:02}", k)), set.at("topk")[k - 1]) << k;
      }
    }
  }
}

TEST(Accuracy, TopkFollowsFromTheClasses) {
  EXPECT_THAT(Accuracy({.num_classes = 3}).names(), ElementsAre("accuracy01", "accuracy01/std"));
  EXPECT_THAT(Accuracy({.num_classes = 5}).names(),
              ElementsAre("accuracy01", "accuracy01/std", "accuracy03", "accuracy03/std"));
  EXPECT_EQ(Accuracy({.num_classes = 6}).names().size(), 6u);
  EXPECT_EQ(Accuracy(AccuracyOptions{}).names().size(), 2u);
  const Accuracy named({.topk = {2, 10}, .prefix = "head_", .suffix = "_a"});
  EXPECT_THAT(named.names(), ElementsAre("head_accuracy02_a", "head_accuracy02_a/std",
                                         "head_accuracy10_a", "head_accuracy10_a/std"));
  expect_names_match(named);
}

TEST(Accuracy, DeviationIsThatOfTheBatches) {
  Accuracy accuracy({.topk = {1}});
  accuracy.update(torch::tensor({1, 1, 1, 0}), torch::tensor({1, 1, 1, 1}));
  accuracy.update(torch::tensor({1, 0}), torch::tensor({1, 1}));
  const double mean = 4.0 / 6;
  EXPECT_EQ(accuracy.compute().at("accuracy01"), mean);
  const double squares = 4 * std::pow(0.75 - mean, 2) + 2 * std::pow(0.5 - mean, 2);
  EXPECT_NEAR(accuracy.compute().at("accuracy01/std"), std::sqrt(squares / 5), 1e-15);
}

TEST(Accuracy, EqualBatchesDoNotDeviate) {
  Accuracy accuracy({.topk = {1}});
  for (int i = 0; i < 7; ++i) {
    accuracy.update(torch::tensor({1, 0, 0}), torch::tensor({1, 1, 1}));
  }
  EXPECT_EQ(accuracy.compute().at("accuracy01"), 1.0 / 3);
  EXPECT_EQ(accuracy.compute().at("accuracy01/std"), 0);
}

TEST(Accuracy, NaNIsNeverRight) {
  const torch::Tensor target = torch::tensor({1});
  const AccuracyOptions options = {.topk = {1, 2, 3}};
  const auto shares = [&](std::vector<double> row) {
    const Metrics m = accuracy_of(torch::tensor(row).unsqueeze(0), target, options);
    return std::vector<double>{m.at("accuracy01"), m.at("accuracy02"), m.at("accuracy03")};
  };
  EXPECT_THAT(shares({kNaN, kNaN, kNaN}), ElementsAre(0, 0, 0));
  EXPECT_THAT(shares({0, kNaN, 0}), ElementsAre(0, 0, 0));
  // NaN ranks above every number, at any position
  EXPECT_THAT(shares({0, 1, kNaN}), ElementsAre(0, 1, 1));
  EXPECT_THAT(shares({kNaN, 1, 0}), ElementsAre(0, 1, 1));
}

TEST(Accuracy, PredictionsAreComparedDirectly) {
  EXPECT_EQ(accuracy_of(torch::tensor({1, 0, 2, 2}), torch::tensor({1, 0, 2, 1})).at("accuracy01"),
            0.75);
  EXPECT_EQ(accuracy_of(torch::tensor({{1.0}, {0.0}}), torch::tensor({1, 1})).at("accuracy01"),
            0.5);
  EXPECT_EQ(accuracy_of(torch::tensor({-1, 1}), torch::tensor({-1, 1})).at("accuracy01"), 1);
}

TEST(Accuracy, BadInputIsNamedAndCountsNothing) {
  Accuracy accuracy({.topk = {1, 3}});
  EXPECT_THAT(
      [&] {
        accuracy.update(torch::rand({2, 5}), torch::tensor({0, 5}));
      },
      ThrowsMessage<DataError>(HasSubstr("sample 1 is 5, expected a class from 0 to 4")));
  EXPECT_THAT(
      [&] {
        accuracy.update(torch::rand({2, 2}), torch::tensor({0, 1}));
      },
      ThrowsMessage<DataError>(HasSubstr("2 classes, expected 3 or more, for topk")));
  EXPECT_THROW(accuracy.update(torch::rand({3, 5}), torch::tensor({0, 1})), DataError);
  EXPECT_TRUE(std::isnan(accuracy.compute().at("accuracy01")));
  Accuracy ten({.num_classes = 10});
  EXPECT_THAT(
      [&] {
        ten.update(torch::rand({2, 5}), torch::tensor({0, 1}));
      },
      ThrowsMessage<DataError>(HasSubstr("5 classes, expected 10")));
}

TEST(Accuracy, BadOptionsAreNamed) {
  EXPECT_THROW(Accuracy({.topk = {0}}), ConfigError);
  EXPECT_THROW(Accuracy({.topk = {1, 1}}), ConfigError);
  EXPECT_THROW(Accuracy({.topk = {4}, .num_classes = 3}), ConfigError);
  EXPECT_THROW(Accuracy({.num_classes = 0}), ConfigError);
}

TEST(Accuracy, NothingIsNotANumber) {
  Accuracy accuracy({.num_classes = 10});
  accuracy.update(torch::rand({4, 10}), torch::tensor({1, 2, 3, 4}));
  accuracy.reset();
  accuracy.update(torch::rand({0, 10}), torch::zeros({0}, torch::kInt64));
  for (const auto& [name, value] : accuracy.compute()) EXPECT_TRUE(std::isnan(value)) << name;
}

TEST(Accuracy, MergesToTheBit) {
  for (const auto& set : golden().at("labelled")) {
    const Batches batches{matrix_of<float>(set.at("scores")),
                          vector_of<std::int64_t>(set.at("labels"))};
    const std::int64_t classes = batches.outputs.size(1);
    expect_merges_exactly([&] { return Accuracy({.num_classes = classes}); }, batches.size(),
                          batches);
  }
}

TEST(Accuracy, StateOfAnotherTopkIsRefused) {
  Accuracy three({.num_classes = 10});
  EXPECT_THROW(three.load_state(Accuracy({.topk = {1}}).state()), CheckpointError);
  EXPECT_THAT(
      [&] {
        three.merge(Accuracy({.topk = {1, 2, 4}}).state());
      },
      ThrowsMessage<CheckpointError>(HasSubstr("topk: expected [1, 3, 5], found [1, 2, 4]")));
}

}  // namespace
}  // namespace lockstep::metric

#include "lockstep/metric/log_loss.h"

#include "lockstep/base/error.h"
#include "tests/metric/golden.h"

namespace lockstep::metric {
namespace {

double loss_of(LogLossOptions options, const torch::Tensor& outputs, const torch::Tensor& targets) {
  LogLoss metric(std::move(options));
  metric.update(outputs, targets);
  expect_names_match(metric);
  return metric.compute().at("log_loss");
}

TEST(LogLoss, IsWhatScikitLearnSays) {
  for (const char* const name : {"classes", "binary"}) {
    const auto& set = catalogue().at(name);
    const auto targets =
        vector_of<std::int64_t>(set.at(std::string(name) == "classes" ? "labels" : "targets"));
    const torch::Tensor logits = tensor_of_lists<float>(set.at("logits"));
    expect_near(loss_of({}, logits, targets), set.at("log_loss"), name);
    const torch::Tensor probabilities = tensor_of_lists<double>(set.at("probabilities"));
    expect_near(loss_of({.scores = ScoreKind::kProbabilities}, probabilities, targets),
                set.at("log_loss"), name);
  }
}

TEST(LogLoss, BinaryTargetsMayBeFloats) {
  EXPECT_DOUBLE_EQ(loss_of({}, torch::tensor({{0.0}, {0.0}}), torch::tensor({{0.0}, {1.0}})),
                   std::log(2.0));
}

TEST(LogLoss, MergesToTheBit) {
  const auto& set = catalogue().at("classes");
  const Batches batches{matrix_of<float>(set.at("logits")),
                        vector_of<std::int64_t>(set.at("labels")), 8};
  expect_merges_exactly([] { return LogLoss(); }, batches.size(), batches);
  expect_batches_do_not_matter([] { return LogLoss(); }, batches.outputs, batches.targets);
}

TEST(LogLoss, SmallerIsBetterAndBadInputCountsNothing) {
  LogLoss metric({.prefix = "a_"});
  EXPECT_EQ(metric.better("a_log_loss"), Better::kSmaller);
  EXPECT_THROW(metric.update(torch::rand({2, 3}), torch::tensor({0, 3})), DataError);
  EXPECT_TRUE(std::isnan(metric.compute().at("a_log_loss")));
}

}  // namespace
}  // namespace lockstep::metric

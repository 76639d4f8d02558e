#include "lockstep/callback/cmc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/data/tensor_dataset.h"
#include "tests/callback/metric_runs.h"

namespace lockstep {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Key;

data::DatasetPtr people(std::int64_t count, std::uint64_t seed) {
  torch::manual_seed(seed);
  return data::tensor_dataset({{"features", torch::randn({count, 4})},
                               {"targets", torch::randint(0, 3, {count}, torch::kInt64)},
                               {"cids", torch::randint(0, 2, {count}, torch::kInt64)},
                               {"is_query", torch::arange(count) % 3 == 0}});
}

toy::MetricRun run_with(const std::function<Callbacks()>& callbacks) {
  return {.train = people(24, 1), .valid = people(20, 2), .callbacks = callbacks};
}

TEST(CmcCallback, IsTheSameForAnyNumberOfWorkersAndResumedAndRecovered) {
  const auto history = toy::expect_same_history(run_with([] {
    return Callbacks{
        CmcCallback({.embeddings_key = "logits", .topk = {1, 3}}),
        ReidCmcCallback({.embeddings_key = "logits", .pids_key = "targets", .prefix = "reid_"})};
  }));
  const Metrics& valid = history.at(2).at("valid");
  EXPECT_GE(valid.at("cmc03"), valid.at("cmc01"));
  EXPECT_GT(valid.at("cmc03"), 0);
  EXPECT_THAT(valid, Contains(Key("reid_cmc01")));
}

TEST(CmcCallback, AMissingOrWrongColumnIsNamedBeforeTheRun) {
  const auto error = [](const CmcCallbackOptions& cmc) {
    const toy::MetricRun run = run_with({});
    return toy::error_of([&] { toy::train(toy::options_of(run, {CmcCallback(cmc)})); });
  };
  EXPECT_THAT(error({.embeddings_key = "logits", .is_query_key = "query"}), HasSubstr("query"));
  EXPECT_THAT(error({.embeddings_key = "logits", .labels_key = "features"}),
              HasSubstr("'features' of the batch: expected integers or truth values [N]"));
}

}  // namespace
}  // namespace lockstep

#include "lockstep/runner/predictions.h"

#include <numeric>

#include <gtest/gtest.h>

#include "tests/support/toy.h"

namespace lockstep {
namespace {

TEST(Predictions, AreOneBatchAfterAnother) {
  const Model model(toy::model());
  const data::Loader loader(toy::points(10), {.batch_size = 4});
  SupervisedRunner runner;
  std::vector<std::int64_t> sizes;
  for (Batch& outputs : runner.predict_loader({.loader = loader, .model = model})) {
    EXPECT_FALSE(outputs["logits"].requires_grad());
    sizes.push_back(outputs.size());
  }
  EXPECT_EQ(sizes, (std::vector<std::int64_t>{4, 4, 2}));
}

TEST(Predictions, InEvaluationModeAndInOrder) {
  const auto dataset = toy::points(10);
  const Model model(toy::model());
  SupervisedRunner runner;
  const auto all = runner.predict_loader({.loader = {dataset, {.batch_size = 3}}, .model = model})
                       .concat("logits");
  torch::NoGradGuard no_grad;
  model.train(false);
  std::vector<std::int64_t> indices(10);
  std::iota(indices.begin(), indices.end(), 0);
  EXPECT_TRUE(torch::allclose(all, model(dataset->gather(indices, {})["features"])));
}

// Sample i has i + 1 words.
struct GrowingSamples : data::Dataset {
  std::int64_t size() const override { return 4; }
  Batch sample(std::int64_t i) const override { return {{"features", torch::ones({i + 1})}}; }
};

struct IdentityImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return x; }
};

TEST(Predictions, OfSequencesAreReadBatchByBatch) {
  const data::Loader loader(std::make_shared<GrowingSamples>(),
                            {.batch_size = 2, .collate = data::pad()});
  SupervisedRunner runner;
  const Model model = std::make_shared<IdentityImpl>();
  const std::string error = toy::error_of(
      [&] { runner.predict_loader({.loader = loader, .model = model}).concat("logits"); });
  EXPECT_NE(error.find("'logits' is Float [2, 2] in one batch and Float [2, 4] in another"),
            std::string::npos)
      << error;
}

TEST(Predictions, WithoutABatchThereIsNothingToConcatenate) {
  SupervisedRunner runner;
  auto none = runner.predict_loader({.loader = {toy::points(0)}, .model = toy::model()});
  EXPECT_FALSE(none.next());
  EXPECT_THROW(none.concat("logits"), DataError);
}

}  // namespace
}  // namespace lockstep

// Whole configs that do not fit are in recipe_test.cpp.
#include "lockstep/recipe/fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/data/tensor_dataset.h"
#include "tests/recipe/support.h"

namespace lockstep::recipe {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::node;

TEST(SomeSamples, AreTheFirstOnesAsABatch) {
  const data::Loader loader = {
      std::make_shared<data::TensorDataset>(torch::arange(6).reshape({3, 2}), torch::arange(3)),
      {}};
  EXPECT_EQ(some_samples(loader, 2, node("{}"))["features"].sizes(), torch::IntArrayRef({2, 2}));
  EXPECT_EQ(some_samples(loader, 100, node("{}"))["targets"].size(0), 3);
  EXPECT_THAT(
      error_of([&] { tensor_of(some_samples(loader, 1, node("{}")), "feature", node("{}")); }),
      HasSubstr("a.yml:1: it: its batches have no 'feature', which the run needs; did you mean "
                "'features'"));
}

TEST(SomeSamples, WhatTheDataSetThrowsIsFoundAtItsPlace) {
  class Broken : public data::Dataset {
    std::int64_t size() const override { return 3; }
    Batch sample(std::int64_t) const override { throw DataError("cube 0 is damaged"); }
  };
  EXPECT_THAT(error_of([&] {
                some_samples({std::make_shared<Broken>(), {}}, 1, node("{}"));
              }),
              HasSubstr("a.yml:1: it: sample 0: cube 0 is damaged"));
}

}  // namespace
}  // namespace lockstep::recipe

#include "lockstep/metric/loader_rows.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::metric {
namespace {

torch::Tensor row(float value) {
  return torch::full({1, 2}, value);
}

TEST(LoaderRows, AreInTheOrderOfBatchesAndShards) {
  LoaderRows first, second;
  EXPECT_TRUE(first.empty());
  first.begin({.batch = 1, .shard = 1});
  first.add(row(2), row(20));
  second.begin({.batch = 2, .shard = 0});
  second.add(row(3), row(30));
  second.begin({.batch = 1, .shard = 0});
  second.add(row(1), row(10));
  LoaderRows all;
  all.load_state(first.state());
  all.merge(second.state());
  EXPECT_FALSE(all.empty());
  EXPECT_TRUE(all.all().outputs.select(1, 0).equal(torch::tensor({1.0F, 2.0F, 3.0F})));
  EXPECT_TRUE(all.all().targets.select(1, 0).equal(torch::tensor({10.0F, 20.0F, 30.0F})));
  all.reset();
  EXPECT_TRUE(all.empty());
}

TEST(LoaderRows, AreCopies) {
  LoaderRows rows;
  const torch::Tensor memory = row(1);
  rows.add(memory, row(10));
  memory.fill_(5);
  EXPECT_EQ(rows.all().outputs[0][0].item<float>(), 1);
}

TEST(LoaderRows, OutputsAndTargetsHaveTheSameSamples) {
  LoaderRows rows;
  EXPECT_THROW(rows.add(torch::zeros({2, 2}), torch::zeros({3, 2})), DataError);
}

}  // namespace
}  // namespace lockstep::metric

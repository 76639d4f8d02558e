#include "lockstep/data/subset.h"

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/data/partitioned.h"
#include "lockstep/data/tensor_dataset.h"

namespace lockstep::data {
namespace {

DatasetPtr ten() {
  return tensor_dataset({{"x", torch::arange(10)}});
}

TEST(Subset, RenumbersTheSamples) {
  const Subset subset(ten(), {7, 2, 7});
  EXPECT_EQ(subset.size(), 3);
  EXPECT_EQ(subset.sample(1)["x"].item<std::int64_t>(), 2);
  const Batch batch = subset.gather(std::vector<std::int64_t>{2, 1}, {});
  EXPECT_TRUE(torch::equal(batch["x"], torch::tensor({7, 2}, torch::kInt64)));
}

TEST(Subset, PassesTheMemoryToReuseOn) {
  const Subset subset(ten(), {7, 2, 7});
  const std::vector<std::int64_t> indices = {0, 1};
  const Batch old = subset.gather(indices, {});
  EXPECT_TRUE(subset.gather(indices, old)["x"].is_same(old["x"]));
}

TEST(Subset, RefusesWhatIsNotThere) {
  EXPECT_THROW(Subset(nullptr, {}), ConfigError);
  EXPECT_THROW(Subset(ten(), {10}), DataError);
  const Subset subset(ten(), {7, 2, 7});
  EXPECT_THROW(subset.sample(3), DataError);
  EXPECT_THROW(subset.gather(std::vector<std::int64_t>{-1}, {}), DataError);
}

TEST(Subset, ExamplesAreSamplesThatAreHere) {
  const auto second =
      partitioned({.parts = 2, .here = {{1, tensor_dataset({{"x", torch::arange(3)}})}}});
  const Subset subset(second, {5, 0, 1, 4});
  EXPECT_EQ(subset.examples(9), (std::vector<std::int64_t>{0, 3}));
  EXPECT_EQ(subset.examples(1), (std::vector<std::int64_t>{0}));
}

}  // namespace
}  // namespace lockstep::data

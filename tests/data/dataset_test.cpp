#include "lockstep/data/dataset.h"

#include <vector>

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "tests/data/error_text.h"

namespace lockstep::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// The example in dataset.h.
class Squares : public Dataset {
 public:
  std::int64_t size() const override { return 100; }
  Batch sample(std::int64_t i) const override {
    return {{"features", torch::tensor({float(i)})}, {"targets", torch::tensor({float(i * i)})}};
  }
};

// Sample 7 differs from the other samples.
class Uneven : public Dataset {
 public:
  explicit Uneven(Batch odd) : odd_(std::move(odd)) {}
  std::int64_t size() const override { return 10; }
  Batch sample(std::int64_t i) const override {
    return i == 7 ? odd_ : Batch{{"features", torch::zeros({2, 3})}, {"targets", torch::zeros({})}};
  }

 private:
  Batch odd_;
};

std::string error_of(const Dataset& dataset, const std::vector<std::int64_t>& indices) {
  return error_text<DataError>([&] { dataset.gather(indices, {}); });
}

TEST(Dataset, StacksSamples) {
  const Batch batch = Squares().gather(std::vector<std::int64_t>{3, 1, 3}, {});
  EXPECT_TRUE(torch::equal(batch["features"], torch::tensor({{3.0F}, {1.0F}, {3.0F}})));
  EXPECT_TRUE(torch::equal(batch["targets"], torch::tensor({{9.0F}, {1.0F}, {9.0F}})));
}

TEST(Dataset, WritesIntoTheBatchToReuse) {
  const std::vector<std::int64_t> indices = {1, 2};
  const Batch old = Squares().gather(indices, {});
  const void* memory = old["features"].data_ptr();
  const Batch fresh = Squares().gather(indices, old);
  EXPECT_EQ(fresh["features"].data_ptr(), memory);
  EXPECT_NE(Squares().gather(std::vector<std::int64_t>{1}, old)["features"].data_ptr(), memory);
}

TEST(Dataset, NamesTheSampleWhoseShapeDiffers) {
  const Uneven dataset({{"features", torch::zeros({2, 4})}, {"targets", torch::zeros({})}});
  EXPECT_THAT(
      error_of(dataset, {4, 7}),
      AllOf(
          StartsWith("sample 7: 'features' is Float [2, 4], but that of sample 4 is Float [2, 3]"),
          HasSubstr("collate: data::pad({.keys = {\"features\"}})")));
}

TEST(Dataset, NamesTheSampleWhoseTypeDiffers) {
  const Uneven dataset(
      {{"features", torch::zeros({2, 3})}, {"targets", torch::zeros({}, torch::kInt64)}});
  EXPECT_THAT(error_of(dataset, {4, 7}), HasSubstr("sample 7: 'targets' is Long []"));
}

TEST(Dataset, NamesTheSampleWhoseKeysDiffer) {
  const Uneven fewer(Batch{{"features", torch::zeros({2, 3})}});
  EXPECT_EQ(error_of(fewer, {4, 7}),
            "sample 7: no 'targets', which sample 4 has; it has: features");
  EXPECT_THAT(error_of(fewer, {7, 4}),
              HasSubstr("sample 4: has 'targets', which sample 7 has not"));
}

TEST(Dataset, RefusesAnIndexOutOfRange) {
  EXPECT_EQ(error_of(Squares(), {0, 100}), "sample 100: the data set has 0 to 99");
  EXPECT_EQ(error_of(Squares(), {-1}), "sample -1: the data set has 0 to 99");
}

// A loader calls gather_in_epoch().
TEST(Dataset, OverridingOnlySampleInEpochGivesBatchesOfTheEpoch) {
  struct Epochs : Dataset {
    std::int64_t size() const override { return 3; }
    Batch sample(std::int64_t index) const override { return sample_in_epoch(index, {}); }
    Batch sample_in_epoch(std::int64_t, const EpochKey& key) const override {
      return {{"x", torch::tensor(key.epoch)}};
    }
  };
  const Epochs epochs;
  const std::vector<std::int64_t> indices = {0, 2};
  const auto two_of = [](std::int64_t value) { return torch::full({2}, value, torch::kInt64); };
  EXPECT_TRUE(epochs.gather_in_epoch(indices, {.epoch = 5}, {})["x"].equal(two_of(5)));
  EXPECT_TRUE(epochs.gather(indices, {})["x"].equal(two_of(1))) << "without an epoch";
}

TEST(Dataset, OverridingOnlyGatherIsUsedInAnEpoch) {
  struct Gathered : Squares {
    Batch gather(std::span<const std::int64_t>, Batch) const override {
      return {{"gathered", torch::ones({1})}};
    }
  };
  const std::vector<std::int64_t> indices = {0};
  EXPECT_TRUE(Gathered().gather_in_epoch(indices, {}, {}).contains("gathered"));
}

TEST(Dataset, ExamplesAreTheFirstThatAreHere) {
  struct Odd : Squares {
    bool is_here(std::int64_t index) const override { return index % 2 == 1; }
  };
  EXPECT_THAT(Squares().examples(2), ::testing::ElementsAre(0, 1));
  EXPECT_EQ(Squares().examples(1000).size(), 100u);
  EXPECT_THAT(Odd().examples(3), ::testing::ElementsAre(1, 3, 5));
}

}  // namespace
}  // namespace lockstep::data

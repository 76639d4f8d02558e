#include "lockstep/metric/class_counts.h"

#include "lockstep/base/error.h"
#include "tests/metric/golden.h"

namespace lockstep::metric {
namespace {

std::vector<std::int64_t> numbers(const ClassCount& count) {
  return {count.right, count.predicted, count.support, count.counted};
}

TEST(ClassCounts, CountsLabels) {
  ClassCounts counts(3);
  counts.add_labels(torch::tensor({0, 1, 1, 2}), torch::tensor({0, 0, 1, 9}), 9);
  EXPECT_THAT(numbers(counts.classes()[0]), testing::ElementsAre(1, 1, 2, 3));
  EXPECT_THAT(numbers(counts.classes()[1]), testing::ElementsAre(1, 2, 1, 3));
  EXPECT_THAT(numbers(counts.classes()[2]), testing::ElementsAre(0, 0, 0, 3));
  EXPECT_THAT(numbers(counts.total()), testing::ElementsAre(2, 3, 3, 9));
  EXPECT_EQ(counts.classes()[0].missed(), 1);
  EXPECT_EQ(counts.classes()[1].wrong(), 1);
  EXPECT_EQ(counts.classes()[0].agreed(), 2);
}

TEST(ClassCounts, CountsFlagsOfEachClass) {
  ClassCounts counts(2);
  // [samples 2, classes 2, positions 2]
  const auto predicted = torch::tensor({1, 0, 1, 1, 1, 1, 0, 1}, torch::kUInt8).view({2, 2, 2});
  const auto expected = torch::tensor({1, 1, 0, 2, 1, 0, 0, 1}, torch::kUInt8).view({2, 2, 2});
  counts.add_flags(predicted, expected);
  EXPECT_THAT(numbers(counts.classes()[0]), testing::ElementsAre(2, 3, 3, 4));
  EXPECT_THAT(numbers(counts.classes()[1]), testing::ElementsAre(1, 2, 1, 3));
  counts.reset();
  EXPECT_THAT(numbers(counts.total()), testing::ElementsAre(0, 0, 0, 0));
  counts.add_flags(torch::empty({0, 2, 2}, torch::kUInt8), torch::empty({0, 2, 2}, torch::kUInt8));
  EXPECT_THAT(numbers(counts.total()), testing::ElementsAre(0, 0, 0, 0));
}

TEST(ClassCounts, StatesAreAdded) {
  ClassCounts a(2), b(2);
  a.add_labels(torch::tensor({0, 1}), torch::tensor({0, 0}));
  b.add_labels(torch::tensor({1}), torch::tensor({1}));
  b.merge(a.state());
  EXPECT_THAT(numbers(b.classes()[0]), testing::ElementsAre(1, 1, 2, 3));
  EXPECT_THROW(ClassCounts(3).merge(a.state()), CheckpointError);
}

// Version 0.1.0 wrote three counts per class.
TEST(ClassCounts, ReadsCheckpointsWithoutTheNumberOfPositions) {
  ClassCounts counts(2);
  counts.load_state({{"counts", torch::tensor({{1, 1, 2}, {1, 2, 1}})}});
  EXPECT_THAT(numbers(counts.classes()[1]), testing::ElementsAre(1, 2, 1, 3));
}

}  // namespace
}  // namespace lockstep::metric

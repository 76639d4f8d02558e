#include "lockstep/metric/saved_tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::metric {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(SavedTensor, ComesBackAsItWas) {
  const std::vector<std::int64_t> values = {1, 2, 3, 4, 5, 6};
  const StateDict state = {{"counts", tensor_of<std::int64_t>(values, {2, 3})}};
  EXPECT_EQ(state.get<torch::Tensor>("counts")[1][0].item<std::int64_t>(), 4);
  EXPECT_EQ(saved_values<std::int64_t>(state, "counts", {2, 3}), values);
}

TEST(SavedTensor, IsACopyOfWhatItWasMadeFrom) {
  std::vector<float> values = {1, 2};
  const torch::Tensor tensor = tensor_of<float>(values, {2});
  values[0] = 9;
  EXPECT_EQ(tensor[0].item<float>(), 1);
}

TEST(SavedTensor, ReadsATransposedTensorInItsOrder) {
  const torch::Tensor tensor = torch::arange(6, torch::kInt64).view({2, 3}).t();
  EXPECT_THAT(saved_values<std::int64_t>({{"counts", tensor}}, "counts", {3, 2}),
              ElementsAre(0, 3, 1, 4, 2, 5));
}

TEST(SavedTensor, AnotherShapeOrTypeIsNamed) {
  const StateDict state = {{"counts", torch::zeros({5, 5}, torch::kInt64)},
                           {"undefined", torch::Tensor()}};
  EXPECT_THAT(([&] {
                saved_values<std::int64_t>(state, "counts", {10, 10});
              }),
              ThrowsMessage<CheckpointError>(
                  HasSubstr("counts: expected Long [10, 10], found Long [5, 5]")));
  EXPECT_THAT(([&] {
                saved_values<float>(state, "counts", {5, 5});
              }),
              ThrowsMessage<CheckpointError>(
                  HasSubstr("counts: expected Float [5, 5], found Long [5, 5]")));
  EXPECT_THROW(saved_values<float>(state, "undefined", {0}), CheckpointError);
  EXPECT_THROW(saved_values<float>(state, "missing", {0}), CheckpointError);
}

TEST(SavedTensor, KeepsSums) {
  std::vector<ExactSum> sums(2);
  sums[0].add(0.1);
  sums[1].add(-1e300);
  const StateDict state{{"one", saved_sum(sums[0])}, {"two", saved_sums(sums)}};
  EXPECT_EQ(read_sum(state, "one").words(), sums[0].words());
  EXPECT_EQ(read_sums(state, "two", 2)[1].words(), sums[1].words());
  EXPECT_THROW(read_sums(state, "two", 3), CheckpointError);
  EXPECT_THROW(read_sum(state, "two"), CheckpointError);
}

}  // namespace
}  // namespace lockstep::metric

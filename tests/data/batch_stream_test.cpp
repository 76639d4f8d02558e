#include "lockstep/data/batch_stream.h"

#include <set>
#include <stdexcept>

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "lockstep/data/tensor_dataset.h"
#include "tests/data/error_text.h"

namespace lockstep::data {
namespace {

DatasetPtr numbers() {
  return tensor_dataset({{"x", torch::arange(100).view({50, 2})}, {"y", torch::arange(50)}});
}

StreamPlan plan(std::int64_t batches, std::int64_t prefetch = 0) {
  StreamPlan plan{.prefetch = prefetch};
  for (std::int64_t i = 0; i < 50; ++i) plan.order.push_back((i * 7) % 50);
  for (std::int64_t k = 0; k < batches; ++k) plan.batches.push_back({.first = 5 * k, .count = 5});
  return plan;
}

class BatchStreamTest : public testing::TestWithParam<std::int64_t> {};

TEST_P(BatchStreamTest, GivesTheSlicesInOrder) {
  BatchStream stream(numbers(), plan(10, GetParam()));
  for (std::int64_t k = 0; k < 10; ++k) {
    const std::optional<Batch> batch = stream.next();
    ASSERT_TRUE(batch);
    EXPECT_TRUE(torch::equal((*batch)["y"], torch::arange(5 * k, 5 * k + 5).mul(7).remainder(50)));
    EXPECT_TRUE(torch::equal((*batch)["x"].select(1, 0), (*batch)["y"] * 2));
  }
  EXPECT_FALSE(stream.next());
  EXPECT_FALSE(stream.next());
}

TEST_P(BatchStreamTest, NeverWritesOverABatchThatIsHeld) {
  BatchStream stream(numbers(), plan(10, GetParam()));
  std::vector<std::pair<torch::Tensor, torch::Tensor>> held;  // a view, and a copy of its values
  while (std::optional<Batch> batch = stream.next()) {
    const torch::Tensor view = (*batch)["x"].select(1, 1);
    held.emplace_back(view, view.clone());
  }
  ASSERT_EQ(held.size(), 10U);
  for (const auto& [view, copy] : held) EXPECT_TRUE(torch::equal(view, copy));
}

TEST_P(BatchStreamTest, UsesTheMemoryOfBatchesThatWereLetGo) {
  std::set<const void*> memory;
  for (Batch& batch : BatchStream(numbers(), plan(10, GetParam()))) {
    memory.insert(batch["x"].data_ptr());
  }
  EXPECT_LE(memory.size(), static_cast<std::size_t>(GetParam() + 3));
}

TEST_P(BatchStreamTest, EndsHalfWay) {
  BatchStream stream(numbers(), plan(10, GetParam()));
  EXPECT_TRUE(stream.next());
}

TEST_P(BatchStreamTest, MovesHalfWay) {
  BatchStream stream(numbers(), plan(10, GetParam()));
  stream.next();
  BatchStream moved = std::move(stream);
  EXPECT_EQ((*moved.next())["y"][0].item<std::int64_t>(), 35);
  moved = BatchStream(numbers(), plan(1, GetParam()));
  EXPECT_EQ((*moved.next())["y"][0].item<std::int64_t>(), 0);
  EXPECT_FALSE(moved.next());
}

TEST_P(BatchStreamTest, GathersWithoutAutograd) {
  const torch::Tensor weight = torch::ones({2}, torch::requires_grad());
  const auto weighted = tensor_dataset(
      {{"x", torch::ones({50, 2}), Lambda([=](const torch::Tensor& x) { return x * weight; })}});
  BatchStream stream(weighted, plan(1, GetParam()));
  EXPECT_FALSE((*stream.next())["x"].requires_grad());
}

// Sample 40 is at position 20 of the order. Batch 4 is the first batch with it.
class Broken : public Dataset {
 public:
  std::int64_t size() const override { return 50; }
  Batch sample(std::int64_t index) const override {
    if (index == 40) throw std::runtime_error("sample 40 is unreadable");
    return {{"y", torch::tensor(index)}};
  }
};

TEST_P(BatchStreamTest, ThrowsWhatTheDatasetThrowsInItsTurn) {
  BatchStream stream(std::make_shared<Broken>(), plan(10, GetParam()));
  for (int k = 0; k < 4; ++k) ASSERT_TRUE(stream.next()) << k;
  for (int again = 0; again < 2; ++again) {
    EXPECT_EQ(error_text<std::runtime_error>([&] { stream.next(); }), "sample 40 is unreadable");
  }
}

INSTANTIATE_TEST_SUITE_P(Prefetch, BatchStreamTest, testing::Values(0, 1, 2, 100));

TEST(BatchStream, WithoutBatchesIsEmpty) {
  for (Batch& batch : BatchStream(numbers(), plan(0))) FAIL() << batch.size();
}

TEST(BatchStream, RefusesWhatMakesNoSense) {
  EXPECT_THROW(BatchStream(nullptr, plan(1)), ConfigError);
  EXPECT_THROW(BatchStream(numbers(), plan(1, -1)), ConfigError);
  EXPECT_EQ(error_text<ConfigError>([] { BatchStream(numbers(), plan(11)); }),
            "BatchStream: 5 samples from 50 on reach beyond the 50 of the order");
}

}  // namespace
}  // namespace lockstep::data

#include "lockstep/data/batch_stream.h"

#include <algorithm>
#include <set>
#include <stdexcept>

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "lockstep/base/warn.h"
#include "lockstep/data/tensor_dataset.h"
#include "tests/data/error_text.h"
#include "tests/data/toy_transforms.h"

namespace lockstep::data {
namespace {

DatasetPtr numbers() {
  return tensor_dataset({{"x", torch::arange(100).view({50, 2})}, {"y", torch::arange(50)}});
}

struct Ahead {
  std::int64_t prefetch = 0;
  std::int64_t threads = 0;
};

StreamPlan plan(std::int64_t batches, const Ahead& ahead = {}) {
  StreamPlan plan{.prefetch = ahead.prefetch, .threads = ahead.threads};
  for (std::int64_t i = 0; i < 50; ++i) plan.order.push_back((i * 7) % 50);
  for (std::int64_t k = 0; k < batches; ++k) plan.batches.push_back({.first = 5 * k, .count = 5});
  return plan;
}

class BatchStreamTest : public testing::TestWithParam<Ahead> {};

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
  const std::int64_t ahead = std::max(GetParam().prefetch, GetParam().threads);
  EXPECT_LE(memory.size(), static_cast<std::size_t>(ahead + 3));
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

// Everything random about a sample comes from the epoch and its number.
TEST_P(BatchStreamTest, RandomPartsAreThoseOfTheSample) {
  const torch::Tensor signals = torch::arange(5000, torch::kFloat32).view({50, 100});
  const auto parts = tensor_dataset({{"x", signals, Compose({RandomPart(10), RandomOffset()})}});
  const auto values = [&](const Ahead& ahead, std::int64_t epoch) {
    StreamPlan chosen = plan(10, ahead);
    chosen.key.epoch = epoch;
    std::vector<torch::Tensor> batches;
    for (Batch& batch : BatchStream(parts, chosen)) batches.push_back(batch["x"].clone());
    return torch::cat(batches);
  };
  EXPECT_TRUE(torch::equal(values(GetParam(), 3), values({}, 3)));
  EXPECT_FALSE(torch::equal(values(GetParam(), 3), values(GetParam(), 4)));
}

INSTANTIATE_TEST_SUITE_P(Ahead, BatchStreamTest,
                         testing::Values(Ahead{}, Ahead{.prefetch = 1}, Ahead{.prefetch = 2},
                                         Ahead{.prefetch = 100}, Ahead{.threads = 1},
                                         Ahead{.threads = 2}, Ahead{.threads = 4},
                                         Ahead{.prefetch = 3, .threads = 2},
                                         Ahead{.prefetch = 100, .threads = 4}));

// Draws from the global generator in a thread are noticed, and only these.
std::vector<std::string> warnings_of(const TransformPtr& transform, const Ahead& ahead) {
  std::vector<std::string> warnings;
  const WarningHandler previous =
      set_warning_handler([&](const std::string& text) { warnings.push_back(text); });
  const auto dataset = tensor_dataset({{"x", torch::ones({50, 4}), transform}});
  for (Batch& batch : BatchStream(dataset, plan(10, ahead))) {
    EXPECT_EQ(batch.size(), 5);
    torch::rand({3});  // the main thread may draw
  }
  set_warning_handler(previous);
  return warnings;
}

TEST(BatchStream, WarnsOnceOfTheGlobalGenerator) {
  const auto noise =
      Lambda([](const torch::Tensor& batch) { return batch + torch::randn_like(batch); });
  EXPECT_THAT(warnings_of(RandomOffset(), {.prefetch = 2, .threads = 2}), testing::IsEmpty());
  EXPECT_THAT(warnings_of(noise, {}), testing::IsEmpty()) << "the run seeds each batch";
  EXPECT_THAT(warnings_of(noise, {.threads = 2}),
              testing::ElementsAre(testing::HasSubstr("derive from data::RandomDataset or "
                                                      "data::SampleTransform")));
  EXPECT_THAT(warnings_of(noise, {.prefetch = 1}), testing::IsEmpty()) << "once per process";
}

TEST(BatchStream, WithoutBatchesIsEmpty) {
  for (Batch& batch : BatchStream(numbers(), plan(0))) FAIL() << batch.size();
}

TEST(BatchStream, RefusesWhatMakesNoSense) {
  EXPECT_THROW(BatchStream(nullptr, plan(1)), ConfigError);
  EXPECT_THROW(BatchStream(numbers(), plan(1, {.prefetch = -1})), ConfigError);
  EXPECT_THROW(BatchStream(numbers(), plan(1, {.threads = -1})), ConfigError);
  EXPECT_EQ(error_text<ConfigError>([] { BatchStream(numbers(), plan(11)); }),
            "BatchStream: 5 samples from 50 on reach beyond the 50 of the order");
}

}  // namespace
}  // namespace lockstep::data

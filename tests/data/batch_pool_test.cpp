#include "lockstep/data/batch_pool.h"

#include <atomic>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::data {
namespace {

Batch made() {
  Batch batch{{"x", torch::zeros({4, 2})}, {"y", torch::zeros({4})}};
  batch.set("list", std::vector<torch::Tensor>{torch::zeros({3}), torch::zeros({2})});
  batch.set("nested", Batch{{"z", torch::zeros({4})}});
  return batch;
}

TEST(BatchPool, GivesBackABatchThatIsNoLongerHeld) {
  BatchPool pool(2);
  std::optional<Batch> batch = made();
  const void* memory = (*batch)["x"].data_ptr();
  pool.lend(*batch);
  EXPECT_TRUE(pool.take().empty());
  batch.reset();
  const Batch again = pool.take();
  ASSERT_FALSE(again.empty());
  EXPECT_EQ(again["x"].data_ptr(), memory);
  EXPECT_TRUE(pool.take().empty());
}

TEST(BatchPool, GivesBackTheNewestBatchFirst) {
  BatchPool pool(3);
  std::vector<Batch> batches = {made(), made()};
  const void* const newest = batches.back()["x"].data_ptr();
  for (const Batch& batch : batches) pool.lend(batch);
  batches.clear();
  EXPECT_EQ(pool.take()["x"].data_ptr(), newest);
  EXPECT_FALSE(pool.take().empty());
}

// Whether the pool does not give back a batch while a part of it is held. `hold` returns the part.
template <typename Hold>
bool kept_while(const Hold& hold) {
  BatchPool pool(2);
  auto batch = std::make_optional(made());
  pool.lend(*batch);
  bool kept = false;
  {
    [[maybe_unused]] const auto held = hold(*batch);
    batch.reset();
    kept = pool.take().empty();
  }
  return kept;
}

TEST(BatchPool, DoesNotGiveBackABatchThatIsHeld) {
  EXPECT_TRUE(kept_while([](const Batch& batch) { return batch["x"]; }));
  EXPECT_TRUE(kept_while([](const Batch& batch) { return batch["y"]; }));
  EXPECT_TRUE(kept_while([](const Batch& batch) { return batch["x"][1]; }));
  EXPECT_TRUE(kept_while([](const Batch& batch) { return batch["x"].view({8}); }));
  EXPECT_TRUE(kept_while([](const Batch& batch) { return batch["y"].detach(); }));
  EXPECT_TRUE(kept_while([](const Batch& batch) { return batch["y"].storage(); }));
  EXPECT_TRUE(kept_while([](const Batch& batch) { return batch.list("list")[1]; }));
  EXPECT_TRUE(kept_while([](const Batch& batch) { return batch.nested("nested")["z"][0]; }));
  EXPECT_FALSE(kept_while([](const Batch& batch) { return batch["x"].clone(); }));
}

TEST(BatchPool, KeepsAwayFromWhatAutogradNeeds) {
  const torch::Tensor weight = torch::ones({2}, torch::requires_grad());
  EXPECT_TRUE(kept_while([&](const Batch& batch) { return (batch["x"] * weight).sum(); }));
}

TEST(BatchPool, DoesNotGiveBackTensorsThatWantAGradient) {
  EXPECT_TRUE(kept_while([&](const Batch& batch) {
    batch["x"].requires_grad_();
    return 0;
  }));
}

TEST(BatchPool, DoesNotGiveBackMemoryOfOthers) {
  std::vector<float> owned(4, 1);
  const auto view = [&] { return torch::from_blob(owned.data(), {4}); };
  BatchPool pool(2);
  pool.lend({{"x", view()}});
  EXPECT_TRUE(pool.take().empty());
  Batch mixed{{"x", view()}, {"y", torch::zeros({4})}};
  mixed.set("list", std::vector<torch::Tensor>{view(), torch::zeros({2})});
  mixed.set("nested", Batch{{"x", view()}, {"z", torch::zeros({4})}});
  pool.lend(std::exchange(mixed, {}));
  const Batch again = pool.take();
  EXPECT_THAT(again.keys(), testing::ElementsAre("y", "nested"));
  EXPECT_THAT(again.nested("nested").keys(), testing::ElementsAre("z"));
}

TEST(BatchPool, DoesNotGiveBackViewsWithOtherValuesThanTheirMemory) {
  BatchPool pool(2);
  pool.lend({{"x", torch::ones({4}, torch::kComplexFloat).conj()}});
  EXPECT_TRUE(pool.take().empty());
}

// Each thread takes a batch, marks it, and finds its own mark.
TEST(BatchPool, SeveralThreadsNeverGetTheSameBatch) {
  BatchPool pool(8);
  std::atomic<int> wrong = 0;
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        Batch batch = pool.take();
        if (batch.empty()) batch = Batch{{"x", torch::zeros({64})}};
        batch["x"].fill_(t);
        pool.lend(batch);
        if (!torch::equal(batch["x"], torch::full({64}, static_cast<float>(t)))) ++wrong;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(wrong, 0);
}

TEST(BatchPool, ForgetsTheOldest) {
  BatchPool pool(1);
  const Batch held = made();
  pool.lend(held);
  pool.lend(made());
  EXPECT_FALSE(pool.take().empty());
  EXPECT_EQ(held["x"].use_count(), 1U);
}

}  // namespace
}  // namespace lockstep::data

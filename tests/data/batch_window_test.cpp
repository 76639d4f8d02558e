#include "lockstep/data/batch_window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/data/tensor_dataset.h"

namespace lockstep::data {
namespace {

using Samples = std::vector<std::int64_t>;

Loader window_loader(std::int64_t samples, LoaderOptions options) {
  const auto values = torch::arange(samples);
  return Loader(std::make_shared<TensorDataset>(values, values), std::move(options));
}

Samples values_of(const Batch& batch) {
  Samples values;
  for (std::int64_t i = 0; i < batch.size(); ++i) {
    values.push_back(batch["features"][i].item<std::int64_t>());
  }
  return values;
}

// The samples of a window's batches from first_batch on, as workers with one shard each get them.
std::vector<Samples> read(const Loader& loader, const WindowOptions& options, std::int64_t shards) {
  const BatchWindow window(loader, options, shards);
  std::vector<Samples> batches;
  std::vector<BatchWindow::Stream> streams;
  for (std::int64_t s = 0; s < shards; ++s) streams.push_back(window.stream({.first_shard = s}));
  for (std::int64_t k = options.first_batch; k < window.batches(); ++k) {
    Samples batch;
    for (std::int64_t s = 0; s < shards; ++s) {
      if (window.slice(k, s).count == 0) continue;
      for (const std::int64_t value : values_of(*streams[static_cast<std::size_t>(s)].next())) {
        batch.push_back(value);
      }
    }
    EXPECT_EQ(window.samples(k), static_cast<std::int64_t>(batch.size())) << "batch " << k;
    EXPECT_EQ(window.samples_before(k + 1) - window.samples_before(k), window.samples(k));
    batches.push_back(std::move(batch));
  }
  return batches;
}

TEST(BatchWindow, IsAnEpochByDefault) {
  const Loader shuffled = window_loader(11, {.batch_size = 2, .shuffle = true});
  for (const std::int64_t shards : {1, 2}) {
    const auto batches = read(shuffled, {.key = {.seed = 3, .epoch = 4}}, shards);
    Samples all;
    for (const Samples& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
    EXPECT_EQ(all, shuffled.order({.seed = 3, .epoch = 4}));
  }
  EXPECT_EQ(read(shuffled, {.batches = 2}, 1).size(), 2u);
  EXPECT_EQ(read(shuffled, {.batches = 20}, 1).size(), 6u) << "not more than an epoch";
}

TEST(BatchWindow, GoesOnFromEpochToEpoch) {
  const Loader shuffled = window_loader(11, {.batch_size = 2, .shuffle = true, .prefetch = 2});
  for (const std::int64_t shards : {1, 2, 3}) {
    std::vector<Samples> series;
    for (std::int64_t epoch = 1; epoch <= 4; ++epoch) {
      for (auto& batch : read(shuffled, {.key = {.seed = 3, .epoch = epoch}}, shards)) {
        series.push_back(std::move(batch));
      }
    }
    const auto part = [&](std::int64_t first, std::int64_t count) {
      return std::vector<Samples>(series.begin() + first, series.begin() + first + count);
    };
    const auto size = static_cast<std::int64_t>(series.size());
    for (std::int64_t begin = 0; begin < size; ++begin) {
      for (const std::int64_t count : {std::int64_t{1}, (size - begin + 1) / 2, size - begin}) {
        const WindowOptions window{
            .key = {.seed = 3, .epoch = 77}, .begin = begin, .batches = count};
        EXPECT_EQ(read(shuffled, window, shards), part(begin, count)) << begin << ", " << count;
        // Resumed in its middle.
        WindowOptions rest = window;
        rest.first_batch = count / 2;
        EXPECT_EQ(read(shuffled, rest, shards), part(begin + count / 2, count - count / 2));
      }
    }
  }
}

TEST(BatchWindow, CountsTheSamplesBeforeABatch) {
  const BatchWindow window(window_loader(5, {.batch_size = 2}), {.begin = 2, .batches = 5}, 1);
  EXPECT_EQ(window.samples(0), 1) << "the last batch of the first epoch";
  EXPECT_EQ(window.samples_before(0), 0);
  EXPECT_EQ(window.samples_before(1), 1);
  EXPECT_EQ(window.samples_before(5), 8);
}

TEST(BatchWindow, OfALoaderWithoutSamplesIsEmpty) {
  const BatchWindow window(window_loader(0, {.batch_size = 2}), {.begin = 3, .batches = 5}, 1);
  EXPECT_EQ(window.batches(), 0);
  EXPECT_EQ(window.samples_before(0), 0);
}

}  // namespace
}  // namespace lockstep::data

// Training on an array that is ten times larger than the memory that the run may take.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/file.h"
#include "lockstep/callback/lambda.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/runner/supervised.h"
#include "lockstep/source/array_dataset.h"
#include "lockstep/source/npy.h"
#include "lockstep/source/npy_reader.h"
#include "tests/support/memory_limit.h"

namespace lockstep::recipe {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kArrayColumns = 1024;
constexpr std::int64_t kArrayRows = 160 * 1024;
constexpr std::uint64_t kRunMemory = 64 << 20;
static_assert(kArrayRows * kArrayColumns * sizeof(float) >= 10 * kRunMemory);

// An array of zeros that takes no space on the disk.
void write_zeros(const fs::path& path, const std::vector<std::int64_t>& shape) {
  const std::string header = data::npy_header(torch::kFloat32, shape);
  std::ofstream(path, std::ios::binary) << header;
  std::uintmax_t numbers = 1;
  for (const std::int64_t length : shape) numbers *= static_cast<std::uintmax_t>(length);
  fs::resize_file(path, header.size() + numbers * sizeof(float));
}

// Sets the first number of these rows to the number of the row.
void number_rows(const fs::path& path, const std::vector<std::int64_t>& rows) {
  const auto header = static_cast<std::int64_t>(
      data::npy_header(torch::kFloat32, {kArrayRows, kArrayColumns}).size());
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  for (const std::int64_t row : rows) {
    const auto number = static_cast<float>(row);
    file.seekp(header + row * kArrayColumns * static_cast<std::int64_t>(sizeof(float)));
    file.write(reinterpret_cast<const char*>(&number), sizeof number);
  }
  file.flush();
  ASSERT_TRUE(file.good());
}

// Trains and returns the first number of each sample.
std::vector<std::int64_t> rows_trained_on(const data::Loader& loader) {
  std::vector<std::int64_t> seen;
  SupervisedRunner runner;
  runner.train(TrainOptions{
      .model = torch::nn::Sequential(torch::nn::Linear(kArrayColumns, 1)),
      .criterion = torch::nn::MSELoss(),
      .optimizer = optim::SGD{.lr = 1e-12},
      .loaders = {{"train", loader}},
      .seed = 1,
      .num_epochs = 1,
      .callbacks = {on_batch_end([&](State& state) {
        const torch::Tensor rows = state.batch["features"].select(1, 0).to(torch::kInt64);
        seen.insert(seen.end(), rows.data_ptr<std::int64_t>(),
                    rows.data_ptr<std::int64_t>() + rows.numel());
      })},
      .console = false,
  });
  return seen;
}

TEST(LargerThanMemory, AnArrayIsTrainedOnFromAllOverTheFile) {
  const TemporaryDirectory folder;
  const fs::path features = folder.path() / "x.npy";
  const fs::path targets = folder.path() / "y.npy";
  write_zeros(features, {kArrayRows, kArrayColumns});
  write_zeros(targets, {kArrayRows, 1});
  const data::LoaderOptions options{
      .batch_size = 64, .shuffle = true, .threads = 2, .max_batches = 20};
  const data::Loader loader = {
      data::array_dataset({.features = features.string(), .targets = targets.string()}), options};
  const std::vector<std::int64_t> order = loader.order({.seed = 1, .epoch = 1});
  ASSERT_EQ(order.size(), 20 * 64);
  number_rows(features, order);

  // Threads and buffers of LibTorch and its BLAS are not what is measured here.
  rows_trained_on({std::make_shared<data::TensorDataset>(torch::zeros({256, kArrayColumns}),
                                                         torch::zeros({256, 1})),
                   options});
  const MemoryLimit limit(kRunMemory);
  if (!kHasAddressSanitizer && !kHasThreadSanitizer) {
    EXPECT_ANY_THROW(data::read_npy(features).clone()) << "the limit has no effect";
  }
  EXPECT_EQ(rows_trained_on(loader), order);
  EXPECT_GT(std::ranges::max(order) - std::ranges::min(order), kArrayRows / 10 * 9);
}

}  // namespace
}  // namespace lockstep::recipe

#include <cstring>
#include <filesystem>

#include <lockstep/lockstep.h>

#include "bench/loading_pass.h"
#include "lockstep/source/npy.h"
#include "lockstep/source/npy_reader.h"

namespace lockstep::bench {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kRows = std::int64_t{1} << 19;
constexpr std::int64_t kColumns = 1024;
constexpr std::int64_t kRowBytes = kColumns * static_cast<std::int64_t>(sizeof(float));
constexpr std::int64_t kRowBatch = 256;
constexpr int kRowRounds = 7;

// Every number of row r is r + its column / 1024.
fs::path make_rows(const fs::path& folder) {
  const fs::path path = folder / "rows-1.npy";
  if (fs::exists(path)) return path;
  fmt::print(stderr, "N: making {}\n", path.string());
  data::NpyFile file(path, torch::kFloat32, {kRows, kColumns});
  const torch::Tensor columns = torch::arange(kColumns) / static_cast<double>(kColumns);
  for (std::int64_t first = 0; first < kRows; first += kRowBatch) {
    const torch::Tensor numbers = torch::arange(first, first + kRowBatch).unsqueeze(1);
    file.append((numbers + columns).to(torch::kFloat32));
  }
  file.finish();
  return path;
}

Pass finish(double sum, double seconds) {
  return {.samples_per_second = static_cast<double>(kRows) / seconds, .samples = kRows, .sum = sum};
}

// The sum of the first numbers of all rows is not the same if a row is left out or read twice.
Pass copy_rows(const torch::Tensor& rows, const std::vector<std::int64_t>& order) {
  std::vector<float> batch(static_cast<std::size_t>(kRowBatch * kColumns));
  auto* const to = reinterpret_cast<char*>(batch.data());
  const auto* const from = static_cast<const char*>(rows.data_ptr());
  double sum = 0;
  const Stopwatch watch;
  for (std::int64_t first = 0; first < kRows; first += kRowBatch) {
    for (std::int64_t i = 0; i < kRowBatch; ++i) {
      const std::int64_t row = order[static_cast<std::size_t>(first + i)];
      std::memcpy(to + i * kRowBytes, from + row * kRowBytes, kRowBytes);
    }
    for (std::int64_t i = 0; i < kRowBatch; ++i)
      sum += batch[static_cast<std::size_t>(i * kColumns)];
  }
  return finish(sum, watch.seconds());
}

Pass load_rows(const data::Loader& loader) {
  double sum = 0;
  const Stopwatch watch;
  data::BatchStream stream = loader.stream({.epoch = 1});
  while (const auto batch = stream.next()) {
    const torch::Tensor rows = (*batch)["features"];
    const float* const first = rows.data_ptr<float>();
    for (std::int64_t i = 0; i < rows.size(0); ++i) sum += first[i * kColumns];
  }
  return finish(sum, watch.seconds());
}

void check_same_rows(const Pass& ours, const Pass& theirs) {
  constexpr double kSum = 0.5 * static_cast<double>(kRows) * static_cast<double>(kRows - 1);
  if (ours.sum == kSum && theirs.sum == kSum) return;
  throw Error("N: expected a sum of {}, lockstep has {}, memcpy {}: not the same work", kSum,
              ours.sum, theirs.sum);
}

}  // namespace

nlohmann::json run_rows(const LoadingOptions& options) {
  torch::set_num_threads(1);
  fs::create_directories(options.folder);
  const fs::path path = make_rows(options.folder);
  const data::Loader loader = {data::array_dataset({.features = path.string()}),
                               {.batch_size = kRowBatch, .shuffle = true}};
  // A mapping of its own, as the data set has one: each has its own page table to fill.
  const torch::Tensor rows = data::read_npy(path);
  const std::vector<std::int64_t> order = loader.order({.epoch = 1});

  std::vector<double> lockstep;
  std::vector<double> loop;
  // The first round reads the file into the page cache and maps its pages.
  for (int round = -1; round < kRowRounds; ++round) {
    Pass ours;
    const bool ours_first = round % 2 == 0;
    if (ours_first) ours = load_rows(loader);
    const Pass theirs = copy_rows(rows, order);
    if (!ours_first) ours = load_rows(loader);
    check_same_rows(ours, theirs);
    if (round < 0) continue;
    lockstep.push_back(ours.samples_per_second);
    loop.push_back(theirs.samples_per_second);
  }
  Speeds pytorch;
  for (const int workers : {0, 1, 2, 3}) {
    pytorch.add(workers, run_dataloader(options, "rows", path, workers));
  }
  const double ratio = median(lockstep) / median(loop);
  fmt::print("\n{} rows of {} bytes in an .npy file, shuffled, batches of {}, one thread\n\n",
             kRows, kRowBytes, kRowBatch);
  for (const auto& [name, speeds] : {std::pair("lockstep", lockstep), std::pair("memcpy", loop)}) {
    fmt::print("{:<24} {:>14.0f} rows/s ±{:>2.0f}%\n", name, median(speeds), 50 * spread(speeds));
  }
  pytorch.print("pytorch", "workers");
  fmt::print("lockstep / memcpy: {:.2f}\n", ratio);
  return {{"lockstep", median(lockstep)},
          {"memcpy", median(loop)},
          {"ratio", ratio},
          {"pytorch", pytorch.json()}};
}

}  // namespace lockstep::bench

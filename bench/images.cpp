#include <filesystem>
#include <fstream>

#include <lockstep/lockstep.h>

#include "bench/loading_pass.h"
#include "lockstep/base/file.h"

namespace lockstep::bench {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kImages = 4000;
constexpr std::int64_t kClasses = 10;
constexpr std::int64_t kSide = 256;
constexpr std::int64_t kCrop = 128;
constexpr std::int64_t kImageBatch = 64;
constexpr int kImageRounds = 3;
constexpr std::int64_t kWarmUp = 4;  // batches before each measurement

// Smooth colours, textures of several sizes, objects with sharp edges and the noise of a sensor: it
// has about as many bytes as a photo.
torch::Tensor make_photo(std::int64_t number) {
  auto random = torch::make_generator<torch::CPUGeneratorImpl>(static_cast<std::uint64_t>(number));
  namespace F = torch::nn::functional;
  const auto texture = [&](std::int64_t cells, double strength) {
    const auto noise = torch::randn({1, 3, cells, cells}, random);
    return strength * F::interpolate(noise, F::InterpolateFuncOptions()
                                                .size(std::vector<std::int64_t>{kSide, kSide})
                                                .mode(torch::kBicubic)
                                                .align_corners(false))[0];
  };
  torch::Tensor photo = 120 + texture(4, 45) + texture(32, 12) + texture(128, 9);
  const torch::Tensor y = torch::arange(kSide).view({kSide, 1});
  const torch::Tensor x = torch::arange(kSide).view({1, kSide});
  for (int object = 0; object < 6; ++object) {
    const torch::Tensor place = torch::rand({2}, random) * kSide;
    const double radius = 10 + 40 * torch::rand({1}, random).item<double>();
    const torch::Tensor colour = 255 * torch::rand({3, 1, 1}, random);
    const torch::Tensor dy = (y - place[0]).abs();
    const torch::Tensor dx = (x - place[1]).abs();
    const torch::Tensor distance =
        object % 2 == 0 ? (dy * dy + dx * dx).sqrt() : torch::maximum(dy, dx);
    photo = torch::where(distance < radius, 0.4 * photo + 0.6 * colour, photo);
  }
  photo = photo + 6 * torch::randn({3, kSide, kSide}, random);
  return photo.clamp(0, 255).to(torch::kUInt8).permute({1, 2, 0}).contiguous();
}

// A folder for each class. It gets its name when it is complete.
fs::path make_images(const fs::path& folder) {
  const fs::path made = folder / "images-1";
  if (fs::exists(made)) return made;
  fmt::print(stderr, "I: making {} images in {}\n", kImages, made.string());
  const fs::path unfinished = folder / "images-unfinished";
  fs::remove_all(unfinished);
  for (std::int64_t i = 0; i < kImages; ++i) {
    const fs::path of_class = unfinished / fmt::format("class{}", i % kClasses);
    fs::create_directories(of_class);
    write_file_atomically(of_class / fmt::format("{:04}.jpg", i),
                          data::encode_jpeg(make_photo(i), {.quality = 90}));
  }
  fs::rename(unfinished, made);
  return made;
}

// So that they are in the page cache.
std::int64_t read_all(const fs::path& root) {
  std::int64_t bytes = 0;
  std::vector<char> buffer(1 << 20);
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    while (file.read(buffer.data(), static_cast<std::streamsize>(buffer.size())), file.gcount() > 0)
      bytes += file.gcount();
  }
  return bytes;
}

Pass run_epoch(const data::Loader& loader, std::int64_t epoch) {
  {
    data::BatchStream warm_up = loader.stream({.epoch = epoch});
    for (std::int64_t i = 0; i < kWarmUp; ++i) warm_up.next();
  }
  Pass pass;
  double pixels = 0;
  std::int64_t batches = 0;
  const Stopwatch watch;
  data::BatchStream stream = loader.stream({.epoch = epoch + 1});
  while (const auto batch = stream.next()) {
    const torch::Tensor images = (*batch)["features"];
    pass.samples += images.size(0);
    pass.sum += (*batch)["targets"].sum().item<double>();
    pixels += images.select(3, kCrop / 2).select(2, kCrop / 2).mean().item<double>();
    ++batches;
  }
  pass.samples_per_second = static_cast<double>(pass.samples) / watch.seconds();
  pass.mean = pixels / static_cast<double>(batches);
  return pass;
}

data::Loader make_loader(const fs::path& root, std::int64_t threads) {
  const data::Compose transform(
      {data::RandomResizedCrop({.size = {kCrop}}), data::RandomHorizontalFlip(), data::ToTensor(),
       data::Normalize({.mean = {0.485, 0.456, 0.406}, .std = {0.229, 0.224, 0.225}})});
  return {data::image_folder({.root = root, .transform = transform}),
          {.batch_size = kImageBatch, .shuffle = true, .threads = threads}};
}

// All images must have been there once. Their pixels depend on random crops, so the means of both
// sides are only close to each other.
void check_same_images(const Pass& ours, const Pass& theirs) {
  if (ours.samples == kImages && theirs.samples == kImages && ours.sum == theirs.sum &&
      std::abs(ours.mean - theirs.mean) < 0.1) {
    return;
  }
  throw Error(
      "I: lockstep had {} images with a sum of classes of {} and a mean of {}, pytorch {}, {} and "
      "{}: not the same work",
      ours.samples, ours.sum, ours.mean, theirs.samples, theirs.sum, theirs.mean);
}

}  // namespace

nlohmann::json run_images(const LoadingOptions& options) {
  fs::create_directories(options.folder);
  const fs::path root = make_images(options.folder);
  const std::int64_t bytes = read_all(root);
  Speeds lockstep;
  Speeds pytorch;
  for (int round = 0; round < kImageRounds; ++round) {
    fmt::print(stderr, "I: round {} of {}\n", round + 1, kImageRounds);
    Pass ours;
    const auto run_ours = [&] {
      for (const int threads : {1, 2, 3}) {
        ours = run_epoch(make_loader(root, threads), 2 * round + 1);
        lockstep.add(threads, ours);
      }
    };
    const bool ours_first = round % 2 == 0;
    if (ours_first) run_ours();
    Pass theirs;
    for (const int workers : {0, 1, 2, 3}) {
      theirs = run_dataloader(options, "images", root, workers);
      pytorch.add(workers, theirs);
    }
    if (!ours_first) run_ours();
    check_same_images(ours, theirs);
  }
  const auto [threads, ours] = lockstep.best();
  const auto [workers, theirs] = pytorch.best();
  fmt::print("\n{} JPEGs of {} x {} ({:.0f} KB each), random crops of {}, images/s\n\n", kImages,
             kSide, kSide, 1e-3 * static_cast<double>(bytes) / kImages, kCrop);
  lockstep.print("lockstep", "threads");
  pytorch.print("pytorch", "workers");
  fmt::print("ratio of the best: {:.2f}\n", ours / theirs);
  return {{"lockstep", lockstep.json()}, {"pytorch", pytorch.json()}, {"threads", threads},
          {"num_workers", workers},      {"ratio", ours / theirs},    {"bytes", bytes}};
}

}  // namespace lockstep::bench

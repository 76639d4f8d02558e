// A small convolutional network learns the classes of a folder of images: ROOT/train and ROOT/valid
// have a folder of JPEG, PNG, WebP or TIFF files per class, of any size. Without --root the program
// makes images of three colours.
#include <filesystem>
#include <fstream>
#include <iostream>

#include <lockstep/base/file.h>
#include <lockstep/lockstep.h>

#include "flags.h"

namespace ls = lockstep;
namespace data = lockstep::data;
namespace fs = std::filesystem;
namespace nn = torch::nn;

namespace {

constexpr std::int64_t kSide = 32;  // pixels that the network sees

void write(const fs::path& path, const std::string& bytes) {
  if (!std::ofstream(path, std::ios::binary).write(bytes.data(), std::ssize(bytes))) {
    throw ls::Error("cannot write {}", path.string());
  }
}

std::string as_png(const torch::Tensor& image) {
  const auto* const bytes = image.data_ptr<std::uint8_t>();
  return ls::encode_png({.width = static_cast<int>(image.size(1)),
                         .height = static_cast<int>(image.size(0)),
                         .rgb = {bytes, bytes + image.numel()}});
}

// Noisy images of red, green and blue, of many sizes. Every second one is a JPEG.
void make_colors(const fs::path& folder, std::int64_t per_class) {
  const std::vector<std::pair<std::string, torch::Tensor>> colors = {
      {"red", torch::tensor({170, 90, 90})},
      {"green", torch::tensor({90, 170, 90})},
      {"blue", torch::tensor({90, 90, 170})}};
  for (const auto& [name, color] : colors) {
    fs::create_directories(folder / name);
    for (std::int64_t i = 0; i < per_class; ++i) {
      const auto height = 24 + torch::randint(40, {1}).item<std::int64_t>();
      const auto width = 24 + torch::randint(40, {1}).item<std::int64_t>();
      const auto noise = torch::randint(-60, 61, {height, width, 3});
      const auto light = torch::randint(-25, 26, {1});
      const auto image = (color + noise + light).clamp(0, 255).to(torch::kUInt8).contiguous();
      const fs::path path = folder / name / std::to_string(i);
      if (i % 2 == 0) {
        write(path.string() + ".jpg", data::encode_jpeg(image));
      } else {
        write(path.string() + ".png", as_png(image));
      }
    }
  }
}

void make_colors(const fs::path& root) {
  ls::manual_seed(1);
  make_colors(root / "train", 120);
  make_colors(root / "valid", 30);
}

std::shared_ptr<const data::ImageFolder> load(const fs::path& root,
                                              const data::TransformPtr& window) {
  const data::Compose transform(
      {window, data::ToTensor(), data::Normalize({.mean = {0.5}, .std = {0.25}})});
  return data::image_folder({.root = root, .transform = transform});
}

nn::Sequential make_model(std::int64_t classes) {
  const auto conv = [](int in, int out) {
    return nn::Conv2d(nn::Conv2dOptions(in, out, 3).stride(2).padding(1));
  };
  return nn::Sequential(conv(3, 16), nn::ReLU(), conv(16, 32), nn::ReLU(), conv(32, 32), nn::ReLU(),
                        nn::AdaptiveAvgPool2d(1), nn::Flatten(), nn::Linear(32, classes));
}

}  // namespace

int main(int argc, char** argv) try {
  std::optional<std::string> root, make;
  const Flags flags = read_flags(
      argc, argv, "Trains a small network on a folder of images.", 3,
      {{"--root",
        "Folder with train and valid, which have a folder per class; default: 450 images "
        "of three colours",
        root},
       {"--make", "Only write the images of three colours into this folder", make}});
  if (make) {
    make_colors(*make);
    return 0;
  }
  const ls::TemporaryDirectory temporary;
  if (!root) {
    std::cout << "There is no --root: making 450 images of three colours.\n";
    make_colors(temporary.path());
  }
  const fs::path folder = root ? fs::path(*root) : temporary.path();
  const auto train =
      load(folder / "train", data::RandomResizedCrop({.size = {kSide}, .scale = {0.5, 1.0}}));
  const auto valid = load(folder / "valid", data::Resize({.size = {kSide, kSide}}));

  ls::manual_seed(42);
  ls::Callbacks callbacks = flags.callbacks();
  callbacks.add(ls::AccuracyCallback({.input_key = "logits", .target_key = "targets"}));
  ls::SupervisedRunner runner;
  const auto result = runner.train(ls::TrainOptions{
      .model = make_model(static_cast<std::int64_t>(train->classes().size())),
      .criterion = nn::CrossEntropyLoss(),
      .optimizer = ls::optim::Adam{.lr = 0.01},
      .loaders = {{"train", {train, {.batch_size = 16, .shuffle = true}}},
                  {"valid", {valid, {.batch_size = 16}}}},
      .num_epochs = flags.epochs,
      .logdir = flags.logdir,
      .resume = flags.resume,
      .valid_loader = "valid",
      .valid_metric = "loss",
      .minimize_valid_metric = true,
      .verbose = !flags.quiet,
      .wire = flags.wire,
      .precision = flags.precision,
      .callbacks = callbacks,
      .ddp = true,
      .workers = flags.workers,
      .shards = flags.shards,
      .max_restarts = flags.max_restarts,
  });
  // If a launcher started several processes, each of them reaches this line.
  if (result.rank == 0) {
    std::cout << fmt::format("Result: {}, accuracy {:.3f}\n", valid->describe(),
                             result.last_metrics.at("valid").at("accuracy01"));
  }
} catch (const std::exception& error) {
  std::cerr << "images: " << ls::message_of(error) << '\n';
  return ls::exit_code_of(error);
}

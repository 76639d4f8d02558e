// MNIST's digits and Fashion-MNIST's clothes: 60,000 grey images of 28 x 28 pixels to train on and
// 10,000 to test, in 10 classes.
//
//   auto train = ls::data::mnist({.root = "data", .train = true, .download = true});
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/transform.h"

namespace lockstep::data {

struct MnistOptions {
  std::filesystem::path root =
      "data";             // holds the files, or MNIST/raw (FashionMNIST/raw) with them
  bool train = true;      // the 60,000 images, else the 10,000
  bool download = false;  // download missing files into the root
  TransformPtr transform = ToTensor();                   // from uint8 [B, 28, 28] to "features"
  TransformPtr target_transform = {};                    // from int64 [B] to "targets"
  std::optional<std::vector<std::string>> mirrors = {};  // base URLs to use instead
};

// "features" are float32 [B, 1, 28, 28] in [0, 1], unless the transform changes that, and "targets"
// are int64 [B], unless target_transform changes that. Files may be plain or gzip. Throws DataError
// if they are missing or damaged.
DatasetPtr mnist(const MnistOptions& options = {});

// Also finds the files of Debian's package dataset-fashion-mnist.
DatasetPtr fashion_mnist(const MnistOptions& options = {});

}  // namespace lockstep::data

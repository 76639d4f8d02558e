// Data sets in the format of MNIST: grey images of 28 x 28 pixels.
//
//   auto train = ls::data::kmnist({.root = "data", .train = true, .download = true});
//   auto letters = ls::data::emnist({.root = "data", .split = "letters"});
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/transform.h"
#include "lockstep/source/mnist.h"

namespace lockstep::data {

// Kuzushiji-MNIST: 60,000 and 10,000 old Japanese letters in 10 classes.
DatasetPtr kmnist(const MnistOptions& options = {});

struct EmnistOptions {
  std::filesystem::path root = "data";  // holds the files, or EMNIST/raw with them
  // byclass (62 classes), bymerge and balanced (47), letters (27: 1 to 26, 0 is not used), digits
  // or mnist (10).
  std::string split = "balanced";
  bool train = true;
  bool download = false;                                 // download the archive into the root
  TransformPtr transform = ToTensor();                   // from uint8 [B, 28, 28] to "features"
  TransformPtr target_transform = {};                    // from int64 [B] to "targets"
  std::optional<std::vector<std::string>> mirrors = {};  // base URLs to use instead
};

// EMNIST: letters and digits. Rows and columns of its images are exchanged, as in the files and in
// torchvision. It is published as one archive of 560 MB with all splits, which stays in the root:
// another split needs no further download. Throws ConfigError if there is no such split.
DatasetPtr emnist(const EmnistOptions& options = {});

struct QmnistOptions {
  std::filesystem::path root = "data";  // holds the files, or QMNIST/raw with them
  bool train = true;                    // the 60,000 images to train on, else the 60,000 to test
  // Instead of `train`: train, test, test10k (the test images of MNIST), test50k (the others) or
  // nist (all digits of NIST, which are packed by xz: the error says how to get them by hand).
  std::optional<std::string> what = {};
  // The target is the class. Otherwise it is int64 [8]: class, series, writer and more.
  bool compat = true;
  bool download = false;                                 // download missing files into the root
  TransformPtr transform = ToTensor();                   // from uint8 [B, 28, 28] to "features"
  TransformPtr target_transform = {};                    // from int64 [B] or [B, 8] to "targets"
  std::optional<std::vector<std::string>> mirrors = {};  // base URLs to use instead
};

// QMNIST: MNIST's digits with 60,000 test images and their origin. Throws ConfigError if there is
// no such part.
DatasetPtr qmnist(const QmnistOptions& options = {});

}  // namespace lockstep::data

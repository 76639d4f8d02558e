// CIFAR-10 and CIFAR-100: 50,000 colour images of 32 x 32 pixels to train on and 10,000 to test, in
// 10 or 100 classes.
//
//   auto train = ls::data::cifar10({.root = "data", .train = true, .download = true});
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/transform.h"

namespace lockstep::data {

struct CifarOptions {
  // Holds the folder that torchvision makes (cifar-10-batches-py), the folder of the binary version
  // (cifar-10-batches-bin), the archive (cifar-10-python.tar.gz), or the files of one of them.
  std::filesystem::path root = "data";
  bool train = true;                    // the 50,000 images, else the 10,000
  bool download = false;                // download the archive into the root if nothing is found
  TransformPtr transform = ToTensor();  // from uint8 [B, 32, 32, 3] to "features"
  TransformPtr target_transform = {};   // from int64 [B] to "targets"
  std::optional<std::vector<std::string>> mirrors = {};  // base URLs to use instead
};

// "features" are float32 [B, 3, 32, 32] in [0, 1], unless the transform changes that, and "targets"
// are int64 [B], unless target_transform changes that. Throws DataError if files are missing,
// damaged or do not belong together.
DatasetPtr cifar10(const CifarOptions& options = {});

// The targets are the 100 fine classes.
DatasetPtr cifar100(const CifarOptions& options = {});

}  // namespace lockstep::data

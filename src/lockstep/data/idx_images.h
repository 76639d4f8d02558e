// Labelled images kept as two IDX files a split: MNIST and its relatives. Looked for on disk,
// fetched if wanted, checked, and then an ordinary TensorDataset.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/transform.h"

namespace lockstep::data {

// A file as its mirrors have it.
struct IdxFile {
  std::string name;    // without ".gz"
  std::string sha256;  // of the gzip file
};

struct IdxSplit {
  IdxFile images;
  IdxFile labels;
};

// What is to be known about such a data set.
struct IdxImages {
  std::string name;    // for messages
  std::string folder;  // torchvision's, below the root
  IdxSplit train;
  IdxSplit test;
  std::vector<std::string> mirrors;                   // base addresses
  std::vector<std::filesystem::path> system_folders;  // where a distribution's package puts it
  std::string advice;                                 // how else to get it
  std::int64_t classes = 10;                          // labels are 0 to classes - 1
  std::array<std::int64_t, 2> image_size = {28, 28};  // height and width
};

struct IdxImagesOptions {
  std::filesystem::path root = "data";
  bool train = true;
  bool download = false;
  TransformPtr transform = ToTensor();
  std::optional<std::vector<std::string>> mirrors;
};

// "features" as the transform makes them of uint8 [B, H, W], "targets" as int64 [B]. Throws
// DataError where files are missing, damaged or do not belong together.
DatasetPtr load_idx_images(const IdxImages& images, const IdxImagesOptions& options);

}  // namespace lockstep::data

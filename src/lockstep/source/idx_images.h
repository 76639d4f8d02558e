// Data sets of labelled images with two IDX files per split: MNIST and similar ones. The files are
// searched on the disk, downloaded if the options say so, checked, and loaded as a TensorDataset.
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

// A file as the mirrors have it.
struct IdxFile {
  std::string name;         // without ".gz"
  std::string sha256 = {};  // of the gzip file; it is not downloaded without a checksum
  std::string md5 = {};     // the same, if the publisher gives no SHA-256
};

struct IdxSplit {
  IdxFile images;
  IdxFile labels;
};

// A zip archive that has the gzip files of all splits, if they are not published one by one.
struct IdxArchive {
  std::string name;    // as the mirrors have it
  std::string md5;     // of the archive
  std::string folder;  // of the files in it
};

// The description of such a data set.
struct IdxImages {
  std::string name;    // for messages
  std::string folder;  // below the root, with torchvision's name
  IdxSplit train;
  IdxSplit test;
  std::vector<std::string> mirrors;                   // base addresses
  std::optional<IdxArchive> archive = {};             // the mirrors have it instead of the files
  std::vector<std::filesystem::path> system_folders;  // where a package of the distribution puts it
  std::string advice;                                 // another way to get it
  std::int64_t classes = 10;                          // labels are 0 to classes - 1
  std::int64_t label_columns = 1;                     // if more: int32, the class is the first
  std::array<std::int64_t, 2> image_size = {28, 28};  // height and width
};

struct IdxImagesOptions {
  std::filesystem::path root = "data";
  bool train = true;
  bool download = false;
  TransformPtr transform = ToTensor();
  TransformPtr target_transform = {};
  std::optional<std::vector<std::string>> mirrors;
  bool all_label_columns = false;  // "targets" are int64 [B, label_columns], not only the class
};

// "features" are what the transform makes of uint8 [B, H, W], "targets" what target_transform makes
// of int64 [B]. If the data set has an archive, the archive is downloaded once and stays, and the
// files that are needed are unpacked beside it. Throws DataError if files are missing, damaged or
// do not belong together.
DatasetPtr load_idx_images(const IdxImages& images, const IdxImagesOptions& options);

}  // namespace lockstep::data

// Images in files, with a class each.
//
//   auto train = image_folder({.root = "flowers/train", .transform = Compose({…})});
//   Linear(512, train->classes().size())
//
// By default each folder in `root` is a class, as in torchvision's ImageFolder. Files are read when
// a sample is needed, and nothing is kept in memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/sample_chain.h"
#include "lockstep/data/transform.h"
#include "lockstep/image/decode.h"

namespace lockstep::data {

// The reaction to an image that cannot be read.
enum class OnImageError {
  kStop,  // an error that names the file, when the image is needed
  // It is left out. All images are decoded once when the data set is made, to find them. Errors
  // that are not the file's, such as a lack of memory, still stop the run.
  kSkip,
};

struct ImageFolderOptions {
  // A folder with one folder per class. With `csv`, the folder of its relative paths.
  std::filesystem::path root = {};
  TransformPtr transform = {};         // of the images; default: ToTensor, or none with `floats`
  TransformPtr target_transform = {};  // of the classes, int64 [B]
  // A table of paths and labels, instead of folders: columns `path` and `label`, or two columns
  // without names. Labels are integers or names.
  std::optional<std::filesystem::path> csv = {};
  std::vector<std::string> extensions = {"jpg",  "jpeg", "png",
                                         "webp", "tif",  "tiff"};  // in folders
  Channels channels = Channels::kRgb;
  OnImageError on_error = OnImageError::kStop;
  // Names of classes, by number. Default: all folders or labels, sorted.
  std::vector<std::string> classes = {};
  // Names of the training data's classes, by number: classes() of its data set. A folder may be
  // missing, and a folder of another name is an error, unless `classes` leaves it out.
  std::vector<std::string> train_classes = {};
  // All images below the root, without targets: for predictions.
  bool without_targets = false;
  bool allow_empty = false;  // accept folders without images
  bool floats = false;       // as in DecodeOptions
  // Turn images as their EXIF orientation says. torchvision's ImageFolder does not.
  bool orient = true;
  bool exact = false;  // as in DecodeOptions
  std::int64_t most_pixels = DecodeOptions{}.most_pixels;
};

struct SkippedImage {
  std::filesystem::path path;
  std::string reason;
};

// Samples have "features" (bytes [H, W, C] of the decoder, then the transform) and "targets", the
// number of the class. If the first step of the transform is a WindowTransform, such as
// RandomResizedCrop or Resize, only its window is decoded.
class ImageFolder : public RandomDataset {
 public:
  // Throws DataError if there is no image, or none of a class, and ConfigError if an option is
  // wrong. With kSkip it throws Error if an image could not be checked.
  explicit ImageFolder(ImageFolderOptions options);

  std::int64_t size() const override { return static_cast<std::int64_t>(paths_.size()); }
  using RandomDataset::sample;
  Batch sample(SampleContext& context) const override;

  // Throws DataError that names the file if one cannot be read, and that names two files if images
  // differ in size after the transform.
  Batch gather_in_epoch(std::span<const std::int64_t> indices, const EpochKey& key,
                        Batch reuse) const override;

  // Whether the transform draws random numbers.
  bool is_random() const override;

  // The classes of all samples, for the key "targets"; else an undefined tensor.
  torch::Tensor column(std::string_view key) const override;

  // "sample 3 (flowers/train/rose/17.jpg)"
  std::string name_of(std::int64_t index) const override;

  std::vector<std::string> class_names() const override { return classes_; }
  const std::vector<std::string>& classes() const { return classes_; }

  // Of each sample.
  const std::vector<std::filesystem::path>& paths() const { return paths_; }
  const std::vector<std::int64_t>& targets() const { return targets_; }

  // With OnImageError::kSkip: images that are left out.
  const std::vector<SkippedImage>& skipped() const { return skipped_; }

  // "450 images of 3 classes in flowers/train, 2 skipped"
  std::string describe() const;

 private:
  void skip_broken_images();
  torch::Tensor read(std::int64_t index, Draw& draw) const;

  ImageFolderOptions options_;
  DecodeOptions decoding_;
  std::vector<std::string> classes_;
  std::vector<std::filesystem::path> paths_;
  std::vector<std::int64_t> targets_;
  std::vector<SkippedImage> skipped_;
  TransformPtr first_;  // the first step, if it is a WindowTransform
  SampleChain steps_;   // those after it
};

std::shared_ptr<const ImageFolder> image_folder(ImageFolderOptions options);

}  // namespace lockstep::data

// Data sets of images in files.
#include "lockstep/image/image_folder.h"
#include "lockstep/recipe/targets.h"
#include "lockstep/recipe/values.h"

namespace lockstep::config {

template <>
struct EnumNames<data::Channels> {
  static constexpr std::pair<data::Channels, const char*> names[] = {
      {data::Channels::kRgb, "rgb"},
      {data::Channels::kGrey, "grey"},
      {data::Channels::kRgba, "rgba"},
      {data::Channels::kStored, "stored"}};
};

template <>
struct EnumNames<data::OnImageError> {
  static constexpr std::pair<data::OnImageError, const char*> names[] = {
      {data::OnImageError::kStop, "stop"}, {data::OnImageError::kSkip, "skip"}};
};

}  // namespace lockstep::config

namespace lockstep::recipe {

void add_images(Targets& targets) {
  using O = data::ImageFolderOptions;
  targets.datasets.add<O>(
      "ImageFolder", "JPEG, PNG, WebP and TIFF images in a folder per class, or of a table.",
      {{"root", &O::root, "has a folder per class; with csv: of its relative paths"},
       {"transform", &O::transform, "of the images; default: ToTensor"},
       {"target_transform", &O::target_transform, "of the numbers of classes"},
       {"csv", &O::csv, "a table with the columns path and label, instead of folders"},
       {"extensions", &O::extensions, "of the files in folders"},
       {"channels", &O::channels, "of the decoded images"},
       {"on_error", &O::on_error, "skip: decode all images once and leave out broken ones"},
       {"classes", &O::classes, "names in the order of their numbers; default: all, sorted"},
       {"train_classes", &O::train_classes,
        "of the training data; default: those of the train loader"},
       {"without_targets", &O::without_targets,
        "all images below root, for predictions; their folders have no meaning"},
       {"allow_empty", &O::allow_empty, "accept folders without images"},
       {"floats", &O::floats, "keep 16 bits: floats with channels first instead of bytes"},
       {"orient", &O::orient, "turn images as their EXIF orientation says"},
       {"exact", &O::exact, "decode JPEGs as a whole before a crop or resize"},
       {"most_pixels", &O::most_pixels, "a larger image is an error"}},
      [](const O& o) { return data::image_folder(o); });
}

}  // namespace lockstep::recipe

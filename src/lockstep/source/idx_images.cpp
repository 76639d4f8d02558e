#include "lockstep/source/idx_images.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/base/warn.h"
#include "lockstep/data/describe.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/data/transformed.h"
#include "lockstep/source/download.h"
#include "lockstep/source/idx.h"
#include "lockstep/source/mapped_file.h"
#include "lockstep/source/zip.h"

namespace lockstep::data {
namespace fs = std::filesystem;
namespace {

// Each data set has its own folder, so that data sets with the same file names can share a root.
fs::path own_folder(const IdxImages& images, const IdxImagesOptions& options) {
  return options.root / images.folder / "raw";
}

std::vector<fs::path> folders(const IdxImages& images, const IdxImagesOptions& options) {
  std::vector<fs::path> all = {own_folder(images, options), options.root};
  all.insert(all.end(), images.system_folders.begin(), images.system_folders.end());
  return all;
}

std::optional<fs::path> find(const std::string& name, const std::vector<fs::path>& folders) {
  for (const fs::path& folder : folders) {
    for (const char* suffix : {"", ".gz"}) {
      const fs::path path = folder / (name + suffix);
      if (std::error_code ignored; fs::is_regular_file(path, ignored)) return path;
    }
  }
  return std::nullopt;
}

std::string file_advice(const IdxImages& images, const IdxImagesOptions& options) {
  const std::string or_archive =
      images.archive ? fmt::format(", or {} with download set,", images.archive->name) : "";
  return fmt::format("put the files{} into {} by hand{}{}", or_archive,
                     own_folder(images, options).string(), images.advice.empty() ? "" : ", or ",
                     images.advice);
}

fs::path fetch_archive(const IdxImages& images, const IdxImagesOptions& options) {
  const IdxArchive& archive = *images.archive;
  const fs::path own = own_folder(images, options) / archive.name;
  for (const fs::path& path : {own, options.root / archive.name}) {
    if (std::error_code ignored; fs::is_regular_file(path, ignored)) return path;
  }
  download({.urls = urls_at(options.mirrors.value_or(images.mirrors), archive.name),
            .path = own,
            .md5 = archive.md5,
            .max_bytes = std::int64_t{1} << 30,
            .advice = file_advice(images, options)});
  return own;
}

fs::path take_from_archive(const IdxFile& file, const IdxImages& images,
                           const IdxImagesOptions& options) {
  const fs::path archive = fetch_archive(images, options);
  const fs::path path = own_folder(images, options) / (file.name + ".gz");
  const std::string wanted = images.archive->folder + "/" + path.filename().string();
  reading<DataError>({.path = archive}, [&] {
    const MappedFile mapped(archive);
    const std::vector<ZipMember> members = read_zip(mapped.bytes());
    const auto member = std::ranges::find(members, wanted, &ZipMember::name);
    if (member == members.end()) throw DataError("the archive has no '{}'", wanted);
    make_directories(path.parent_path());
    write_file_atomically(path,
                          [&](const WriteBytes& write) { unpack_zip_member(*member, write); });
  });
  return path;
}

fs::path fetch(const IdxFile& file, const IdxImages& images, const IdxImagesOptions& options) {
  if (images.archive) return take_from_archive(file, images, options);
  const std::string name = file.name + ".gz";
  const fs::path path = own_folder(images, options) / name;
  download({.urls = urls_at(options.mirrors.value_or(images.mirrors), name),
            .path = path,
            .sha256 = file.sha256,
            .md5 = file.md5,
            .max_bytes = std::int64_t{256} << 20,
            .advice = file_advice(images, options)});
  return path;
}

fs::path locate(const IdxFile& file, const IdxImages& images, const IdxImagesOptions& options) {
  const std::vector<fs::path> where = folders(images, options);
  if (const auto path = find(file.name, where)) {
    // If a folder was named, the files of the system would be wrong, and the user would not notice
    // it.
    const bool is_named = options.root != IdxImagesOptions().root;
    if (is_named && std::ranges::find(images.system_folders, path->parent_path()) !=
                        images.system_folders.end()) {
      warn_once(fmt::format("{}: no {} in {}: taken from {}", images.name, file.name,
                            options.root.string(), path->parent_path().string()));
    }
    return *path;
  }
  const bool has_checksum = images.archive || !file.sha256.empty() || !file.md5.empty();
  if (options.download && has_checksum) return fetch(file, images, options);
  std::vector<std::string> names;
  for (const fs::path& folder : where) names.push_back(folder.string());
  throw DataError("{}: no {} (or .gz) in {}; {}{}", images.name, file.name, join(names, ", "),
                  has_checksum ? "set download, or " : "", file_advice(images, options));
}

torch::Tensor read_images(const fs::path& path, const IdxImages& images) {
  torch::Tensor pixels = read_idx(path);
  const auto [height, width] = images.image_size;
  if (pixels.scalar_type() != torch::kUInt8 || pixels.dim() != 3 || pixels.size(1) != height ||
      pixels.size(2) != width) {
    throw DataError("{}: expected images, Byte [N, {}, {}], got {}", path.string(), height, width,
                    describe(pixels));
  }
  return pixels;
}

// The first number of each row is its class.
template <typename Number>
void check_classes(const torch::Tensor& labels, const fs::path& path, const IdxImages& images) {
  const auto* values = labels.data_ptr<Number>();
  for (std::int64_t i = 0; i < labels.size(0); ++i) {
    const std::int64_t label = values[i * images.label_columns];
    if (label < 0 || label >= images.classes) {
      throw DataError("{}: label {} is {}, expected 0 to {}", path.string(), i, label,
                      images.classes - 1);
    }
  }
}

torch::Tensor read_labels(const fs::path& path, const IdxImages& images) {
  torch::Tensor labels = read_idx(path);
  if (images.label_columns == 1) {
    if (labels.scalar_type() != torch::kUInt8 || labels.dim() != 1) {
      throw DataError("{}: expected labels, Byte [N], got {}", path.string(), describe(labels));
    }
    check_classes<std::uint8_t>(labels, path, images);
    return labels;
  }
  if (labels.scalar_type() != torch::kInt32 || labels.dim() != 2 ||
      labels.size(1) != images.label_columns) {
    throw DataError("{}: expected labels, Int [N, {}], got {}", path.string(), images.label_columns,
                    describe(labels));
  }
  check_classes<std::int32_t>(labels, path, images);
  return labels;
}

}  // namespace

DatasetPtr load_idx_images(const IdxImages& images, const IdxImagesOptions& options) {
  const IdxSplit& split = options.train ? images.train : images.test;
  const fs::path image_path = locate(split.images, images, options);
  const fs::path label_path = locate(split.labels, images, options);
  torch::Tensor pixels = read_images(image_path, images);
  torch::Tensor labels = read_labels(label_path, images);
  if (pixels.size(0) != labels.size(0)) {
    throw DataError("{} has {} images, but {} has {} labels", image_path.string(), pixels.size(0),
                    label_path.string(), labels.size(0));
  }
  if (images.label_columns > 1 && !options.all_label_columns) {
    labels = labels.select(1, 0).contiguous();
  }
  DatasetPtr dataset = tensor_dataset({{"features", std::move(pixels), options.transform},
                                       {"targets", std::move(labels), Cast(torch::kInt64)}});
  return with_target_transform(std::move(dataset), options.target_transform);
}

}  // namespace lockstep::data

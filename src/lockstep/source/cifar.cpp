#include "lockstep/source/cifar.h"

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include <fmt/ranges.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/data/transformed.h"
#include "lockstep/source/array_pickle.h"
#include "lockstep/source/byte_reader.h"
#include "lockstep/source/download.h"
#include "lockstep/source/tar.h"

namespace lockstep::data {
namespace fs = std::filesystem;
namespace {

constexpr std::int64_t kCifarSide = 32, kCifarChannels = 3;
constexpr std::int64_t kCifarPixels = kCifarSide * kCifarSide;
constexpr std::int64_t kCifarBytes = kCifarPixels * kCifarChannels;

struct CifarFiles {
  std::string name;           // for messages
  std::string python_folder;  // of pickles, as torchvision leaves it
  std::string binary_folder;
  std::vector<std::string> train;  // file names in the folder of pickles
  std::vector<std::string> test;
  std::string labels;            // the key of the labels in a pickle
  std::int64_t classes = 10;     // labels are 0 to classes - 1
  std::int64_t label_bytes = 1;  // before each image of the binary version; the last one counts
  std::string archive;           // of the pickles
  std::string md5;               // of the archive
};

// Addresses and checksums are those of torchvision.
constexpr const char* kCifarMirror = "https://www.cs.toronto.edu/~kriz/";

CifarFiles files_of_cifar10() {
  return {.name = "CIFAR-10",
          .python_folder = "cifar-10-batches-py",
          .binary_folder = "cifar-10-batches-bin",
          .train = {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"},
          .test = {"test_batch"},
          .labels = "labels",
          .archive = "cifar-10-python.tar.gz",
          .md5 = "c58f30108f718f92721af3b95e74349a"};
}

CifarFiles files_of_cifar100() {
  return {.name = "CIFAR-100",
          .python_folder = "cifar-100-python",
          .binary_folder = "cifar-100-binary",
          .train = {"train"},
          .test = {"test"},
          .labels = "fine_labels",
          .classes = 100,
          .label_bytes = 2,
          .archive = "cifar-100-python.tar.gz",
          .md5 = "eb9058c3a382ffc7106e4002c42a8d85"};
}

// The images of all files of a split, one after the other.
class CifarImages {
 public:
  explicit CifarImages(const CifarFiles& files) : files_(files) {}

  void add_pickle(const std::string& bytes) {
    ArrayPickle pickle = read_array_pickle(bytes);
    const auto data = pickle.arrays.find("data");
    const auto labels = pickle.lists.find(files_.labels);
    if (data == pickle.arrays.end() || labels == pickle.lists.end()) {
      throw DataError("expected an array 'data' and a list '{}', got only {}", files_.labels,
                      keys_of(pickle));
    }
    const std::vector<std::int64_t>& shape = data->second.shape;
    const auto count = static_cast<std::int64_t>(labels->second.size());
    if (count == 0) throw DataError("the file has no images");
    if (shape != std::vector<std::int64_t>{count, kCifarBytes}) {
      throw DataError("expected images of shape [{}, {}], as many as labels, got [{}]", count,
                      kCifarBytes, fmt::join(shape, ", "));
    }
    for (std::int64_t i = 0; i < count; ++i) {
      add(data->second.bytes.data() + i * kCifarBytes, labels->second[static_cast<std::size_t>(i)]);
    }
  }

  void add_binary(const std::string& bytes) {
    const std::int64_t record = files_.label_bytes + kCifarBytes;
    const auto size = static_cast<std::int64_t>(bytes.size());
    if (size == 0 || size % record != 0) {
      throw DataError("expected images of {} bytes each, with their labels, got {} bytes", record,
                      size);
    }
    for (std::int64_t at = 0; at < size; at += record) {
      const char* const image = bytes.data() + at + files_.label_bytes;
      add(image, static_cast<unsigned char>(image[-1]));
    }
  }

  // To be called once, because the data set takes the images.
  DatasetPtr dataset(const CifarOptions& options) {
    const auto count = static_cast<std::int64_t>(labels_.size());
    DatasetPtr images = tensor_dataset(
        {{"features",
          tensor_of(std::move(pixels_)).view({count, kCifarSide, kCifarSide, kCifarChannels}),
          options.transform},
         {"targets", tensor_of(std::move(labels_)), Cast(torch::kInt64)}});
    return with_target_transform(std::move(images), options.target_transform);
  }

 private:
  // Takes the memory without a copy.
  static torch::Tensor tensor_of(std::vector<std::uint8_t> bytes) {
    const auto held = std::make_shared<std::vector<std::uint8_t>>(std::move(bytes));
    return torch::from_blob(
        held->data(), {static_cast<std::int64_t>(held->size())}, [held](void*) {}, torch::kUInt8);
  }

  static std::string keys_of(const ArrayPickle& pickle) {
    std::vector<std::string> keys;
    for (const auto& [key, array] : pickle.arrays) keys.push_back("'" + excerpt(key) + "'");
    for (const auto& [key, list] : pickle.lists) keys.push_back("'" + excerpt(key) + "'");
    return keys.empty() ? "other values" : list_some(keys);
  }

  // The file has all of red, then all of green, then all of blue. Images here have their channels
  // last, as transforms of bytes expect them.
  void add(const char* image, std::int64_t label) {
    if (label < 0 || label >= files_.classes) {
      throw DataError("label {} is {}, expected 0 to {}", labels_.size(), label,
                      files_.classes - 1);
    }
    labels_.push_back(static_cast<std::uint8_t>(label));
    const std::size_t first = pixels_.size();
    pixels_.resize(first + kCifarBytes);
    std::uint8_t* const to = pixels_.data() + first;
    for (std::int64_t c = 0; c < kCifarChannels; ++c) {
      for (std::int64_t i = 0; i < kCifarPixels; ++i) {
        to[i * kCifarChannels + c] = static_cast<std::uint8_t>(image[c * kCifarPixels + i]);
      }
    }
  }

  const CifarFiles& files_;
  std::vector<std::uint8_t> pixels_;
  std::vector<std::uint8_t> labels_;
};

const std::vector<std::string>& split_of(const CifarFiles& files, const CifarOptions& options) {
  return options.train ? files.train : files.test;
}

bool has_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

// Reads each file of the split from a folder of pickles.
DatasetPtr read_cifar_pickles(const fs::path& folder, const CifarFiles& files,
                              const CifarOptions& options) {
  CifarImages images(files);
  for (const std::string& name : split_of(files, options)) {
    const fs::path path = folder / name;
    reading<DataError>({.path = path}, [&] { images.add_pickle(read_unpacked(path)); });
  }
  return images.dataset(options);
}

DatasetPtr read_cifar_binary(const fs::path& folder, const CifarFiles& files,
                             const CifarOptions& options) {
  CifarImages images(files);
  for (const std::string& name : split_of(files, options)) {
    const fs::path path = folder / (name + ".bin");
    reading<DataError>({.path = path}, [&] { images.add_binary(read_unpacked(path)); });
  }
  return images.dataset(options);
}

DatasetPtr read_cifar_archive(const fs::path& path, const CifarFiles& files,
                              const CifarOptions& options) {
  std::vector<std::string> members;
  for (const std::string& name : split_of(files, options)) {
    members.push_back(files.python_folder + "/" + name);
  }
  std::map<std::string, std::string> contents = read_tar(path, {.names = members});
  CifarImages images(files);
  for (const std::string& member : members) {
    reading<DataError>({.path = path / member}, [&] { images.add_pickle(contents.at(member)); });
    contents.erase(member);
  }
  return images.dataset(options);
}

void download_cifar(const CifarFiles& files, const CifarOptions& options) {
  download({.urls = urls_at(options.mirrors.value_or(std::vector<std::string>{kCifarMirror}),
                            files.archive),
            .path = options.root / files.archive,
            .md5 = files.md5,
            .max_bytes = std::int64_t{512} << 20,
            .advice = fmt::format("put {} into {} by hand", files.archive, options.root.string())});
}

DatasetPtr load_cifar(const CifarFiles& files, const CifarOptions& options) {
  const std::string& first = split_of(files, options).front();
  for (const fs::path& folder : {options.root / files.python_folder, options.root}) {
    if (has_file(folder / first)) return read_cifar_pickles(folder, files, options);
  }
  for (const fs::path& folder : {options.root / files.binary_folder, options.root}) {
    if (has_file(folder / (first + ".bin"))) {
      return read_cifar_binary(folder, files, options);
    }
  }
  const fs::path archive = options.root / files.archive;
  if (!has_file(archive)) {
    if (!options.download) {
      throw DataError("{}: no {}, {} or {} in {}; set download, or put one of them there by hand",
                      files.name, files.python_folder, files.binary_folder, files.archive,
                      options.root.string());
    }
    download_cifar(files, options);
  }
  return read_cifar_archive(archive, files, options);
}

}  // namespace

DatasetPtr cifar10(const CifarOptions& options) {
  return load_cifar(files_of_cifar10(), options);
}

DatasetPtr cifar100(const CifarOptions& options) {
  return load_cifar(files_of_cifar100(), options);
}

}  // namespace lockstep::data

#include "lockstep/source/mnist_variants.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/subset.h"
#include "lockstep/source/idx_images.h"

namespace lockstep::data {
namespace {

// Addresses and checksums in this file are those of torchvision.

IdxImages old_japanese() {
  return {
      .name = "KMNIST",
      .folder = "KMNIST",
      .train = {.images = {.name = "train-images-idx3-ubyte",
                           .md5 = "bdb82020997e1d708af4cf47b453dcf7"},
                .labels = {.name = "train-labels-idx1-ubyte",
                           .md5 = "e144d726b3acfaa3e44228e80efcd344"}},
      .test = {.images = {.name = "t10k-images-idx3-ubyte",
                          .md5 = "5c965bf0a639b31b8f53240b1b52f4d7"},
               .labels = {.name = "t10k-labels-idx1-ubyte",
                          .md5 = "7320c461ea6c1c855c0b718fb2a4b134"}},
      .mirrors = {"http://codh.rois.ac.jp/kmnist/dataset/kmnist/"},
  };
}

struct EmnistSplit {
  const char* name;
  std::int64_t classes;
};

constexpr EmnistSplit kEmnistSplits[] = {{"byclass", 62}, {"bymerge", 47}, {"balanced", 47},
                                         {"letters", 27}, {"digits", 10},  {"mnist", 10}};

IdxImages letters_and_digits(const EmnistSplit& split) {
  const auto file = [&](const char* part, const char* kind) {
    return IdxFile{.name = fmt::format("emnist-{}-{}-{}-ubyte", split.name, part, kind)};
  };
  return {
      .name = "EMNIST",
      .folder = "EMNIST",
      .train = {.images = file("train", "images-idx3"), .labels = file("train", "labels-idx1")},
      .test = {.images = file("test", "images-idx3"), .labels = file("test", "labels-idx1")},
      .mirrors = {"https://biometrics.nist.gov/cs_links/EMNIST/",
                  "https://www.itl.nist.gov/iaui/vip/cs_links/EMNIST/"},
      .archive =
          IdxArchive{
              .name = "gzip.zip", .md5 = "58c8d27c78d21e728a6bc7b3cc06412e", .folder = "gzip"},
      .classes = split.classes,
  };
}

constexpr std::int64_t kQmnistColumns = 8;

constexpr const char* kQmnistMirror =
    "https://raw.githubusercontent.com/facebookresearch/qmnist/master/";

// The files of one part. There is no other split.
IdxImages digits_with_origin(const std::string& part) {
  IdxSplit files;
  std::string advice;
  if (part == "train") {
    files = {.images = {.name = "qmnist-train-images-idx3-ubyte",
                        .md5 = "ed72d4157d28c017586c42bc6afe6370"},
             .labels = {.name = "qmnist-train-labels-idx2-int",
                        .md5 = "0058f8dd561b90ffdd0f734c6a30e5e4"}};
  } else if (part == "nist") {
    files = {.images = {.name = "xnist-images-idx3-ubyte"},
             .labels = {.name = "xnist-labels-idx2-int"}};
    advice = fmt::format(
        "run this there, because xz is not read here: curl -L -O {0}{1}.xz -O {0}{2}.xz && xz -d "
        "{1}.xz {2}.xz",
        kQmnistMirror, files.images.name, files.labels.name);
  } else {
    files = {.images = {.name = "qmnist-test-images-idx3-ubyte",
                        .md5 = "1394631089c404de565df7b7aeaf9412"},
             .labels = {.name = "qmnist-test-labels-idx2-int",
                        .md5 = "5b5b05890a5e13444e108efe57b788aa"}};
  }
  return {.name = "QMNIST",
          .folder = "QMNIST",
          .train = files,
          .test = files,
          .mirrors = {kQmnistMirror},
          .advice = advice,
          .label_columns = kQmnistColumns};
}

// The samples from `first` on, at most `most` of them.
struct SampleRange {
  std::int64_t first = 0;
  std::int64_t most = 0;
};

DatasetPtr part_of(DatasetPtr dataset, const SampleRange& range) {
  const std::int64_t first = std::min(range.first, dataset->size());
  std::vector<std::int64_t> indices(
      static_cast<std::size_t>(std::min(range.most, dataset->size() - first)));
  std::iota(indices.begin(), indices.end(), first);
  return std::make_shared<const Subset>(std::move(dataset), std::move(indices));
}

}  // namespace

DatasetPtr kmnist(const MnistOptions& options) {
  return load_idx_images(old_japanese(), {.root = options.root,
                                          .train = options.train,
                                          .download = options.download,
                                          .transform = options.transform,
                                          .target_transform = options.target_transform,
                                          .mirrors = options.mirrors});
}

DatasetPtr emnist(const EmnistOptions& options) {
  std::vector<std::string> names;
  for (const EmnistSplit& split : kEmnistSplits) {
    if (options.split == split.name) {
      return load_idx_images(letters_and_digits(split),
                             {.root = options.root,
                              .train = options.train,
                              .download = options.download,
                              .transform = options.transform,
                              .target_transform = options.target_transform,
                              .mirrors = options.mirrors});
    }
    names.emplace_back(split.name);
  }
  throw ConfigError("split: EMNIST has no '{}'; {}", options.split, suggest(options.split, names));
}

DatasetPtr qmnist(const QmnistOptions& options) {
  static const std::vector<std::string> kParts = {"train", "test", "test10k", "test50k", "nist"};
  const std::string part = options.what.value_or(options.train ? "train" : "test");
  if (std::ranges::find(kParts, part) == kParts.end()) {
    throw ConfigError("what: QMNIST has no '{}'; {}", part, suggest(part, kParts));
  }
  DatasetPtr all =
      load_idx_images(digits_with_origin(part), {.root = options.root,
                                                 .train = options.train,
                                                 .download = options.download,
                                                 .transform = options.transform,
                                                 .target_transform = options.target_transform,
                                                 .mirrors = options.mirrors,
                                                 .all_label_columns = !options.compat});
  constexpr std::int64_t kOfMnist = 10'000;  // the test images of MNIST come first
  if (part == "test10k") return part_of(all, {.first = 0, .most = kOfMnist});
  if (part == "test50k") return part_of(all, {.first = kOfMnist, .most = all->size()});
  return all;
}

}  // namespace lockstep::data

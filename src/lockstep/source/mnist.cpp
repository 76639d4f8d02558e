#include "lockstep/source/mnist.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "lockstep/base/warn.h"
#include "lockstep/data/transformed.h"
#include "lockstep/source/idx_images.h"

namespace lockstep::data {
namespace {

IdxImages digits() {
  return {
      .name = "MNIST",
      .folder = "MNIST",
      .train = {.images = {"train-images-idx3-ubyte",
                           "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"},
                .labels = {"train-labels-idx1-ubyte",
                           "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"}},
      .test = {.images = {"t10k-images-idx3-ubyte",
                          "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"},
               .labels = {"t10k-labels-idx1-ubyte",
                          "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"}},
      .mirrors = {"https://ossci-datasets.s3.amazonaws.com/mnist/",
                  "https://storage.googleapis.com/cvdf-datasets/mnist/"},
  };
}

IdxImages clothes() {
  return {
      .name = "Fashion-MNIST",
      .folder = "FashionMNIST",
      .train = {.images = {"train-images-idx3-ubyte",
                           "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"},
                .labels = {"train-labels-idx1-ubyte",
                           "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"}},
      .test = {.images = {"t10k-images-idx3-ubyte",
                          "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"},
               .labels = {"t10k-labels-idx1-ubyte",
                          "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"}},
      .mirrors =
          {"https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
           "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/"},
      .system_folders = {"/usr/share/datasets/fashion-mnist"},
      .advice = "on Debian `apt-get install dataset-fashion-mnist`",
  };
}

using FirstLabels = std::array<std::int64_t, 10>;
constexpr FirstLabels kTrainDigits = {5, 0, 4, 1, 9, 2, 1, 3, 1, 4};
constexpr FirstLabels kTestDigits = {7, 2, 1, 0, 4, 1, 4, 9, 5, 9};
constexpr FirstLabels kTrainClothes = {9, 0, 0, 3, 0, 2, 7, 2, 5, 5};
constexpr FirstLabels kTestClothes = {9, 2, 1, 1, 6, 1, 4, 6, 5, 7};

bool starts_with(const Dataset& dataset, const FirstLabels& labels) {
  FirstLabels indices{};
  if (dataset.size() < static_cast<std::int64_t>(indices.size())) return false;
  for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<std::int64_t>(i);
  const torch::Tensor found = dataset.gather(indices, {})["targets"];
  return std::equal(labels.begin(), labels.end(), found.data_ptr<std::int64_t>());
}

// Both data sets have the same file names, so a root may have the files of the other one.
DatasetPtr load(const IdxImages& images, const MnistOptions& options, const FirstLabels& other) {
  DatasetPtr dataset = load_idx_images(images, {.root = options.root,
                                                .train = options.train,
                                                .download = options.download,
                                                .transform = options.transform,
                                                .mirrors = options.mirrors});
  if (starts_with(*dataset, other)) {
    warn_once(fmt::format("{} was asked for, but the files in {} are those of {}", images.name,
                          options.root.string(),
                          images.folder == "MNIST" ? "Fashion-MNIST" : "MNIST"));
  }
  return with_target_transform(std::move(dataset), options.target_transform);
}

}  // namespace

DatasetPtr mnist(const MnistOptions& options) {
  return load(digits(), options, options.train ? kTrainClothes : kTestClothes);
}

DatasetPtr fashion_mnist(const MnistOptions& options) {
  return load(clothes(), options, options.train ? kTrainDigits : kTestDigits);
}

}  // namespace lockstep::data

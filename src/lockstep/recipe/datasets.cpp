// Data sets, transforms, samplers and collates.
#include "lockstep/checkpoint/tensor_file.h"
#include "lockstep/data/subset.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/recipe/noise.h"
#include "lockstep/recipe/targets.h"
#include "lockstep/recipe/values.h"
#include "lockstep/source/mnist_variants.h"

namespace lockstep::recipe {
namespace {

using data::DatasetPtr;

void add_mnist(Targets& targets, const std::string& name, const std::string& about,
               DatasetPtr (*make)(const data::MnistOptions&)) {
  using O = data::MnistOptions;
  targets.datasets.add<O>(name, about,
                          {{"root", &O::root, "folder of the files; downloads go there"},
                           {"train", &O::train, "the 60,000 to train on, else the 10,000 to test"},
                           {"download", &O::download, "fetch files that are missing"},
                           {"transform", &O::transform, "default: ToTensor"},
                           {"target_transform", &O::target_transform, "of the classes"},
                           {"mirrors", &O::mirrors, "base addresses to fetch from instead"}},
                          [make](const O& o) { return make(o); });
}

struct SubsetOptions {
  DatasetPtr dataset;
  std::int64_t first = 0;
  std::optional<std::int64_t> count;
};

void add_subset(Targets& targets) {
  using O = SubsetOptions;
  targets.datasets.add<O>("Subset", "Some samples of another data set.",
                          {config::required("dataset", &O::dataset, "the other one"),
                           {"first", &O::first, "index of the first sample; below 0: from the end"},
                           {"count", &O::count, "how many; default: all that follow"}},
                          [](const O& o) {
                            const std::int64_t size = o.dataset->size();
                            const std::int64_t first = o.first < 0 ? size + o.first : o.first;
                            const std::int64_t count = o.count.value_or(size - first);
                            if (first < 0 || first > size) {
                              throw ConfigError("first: expected an index of {} samples, got {}",
                                                size, o.first);
                            }
                            if (count <= 0 || first + count > size) {
                              throw ConfigError("count: expected 1 to {} from sample {} on, got {}",
                                                size - first, first, count);
                            }
                            std::vector<std::int64_t> indices(static_cast<std::size_t>(count));
                            for (std::int64_t i = 0; i < count; ++i)
                              indices[static_cast<std::size_t>(i)] = first + i;
                            return std::make_shared<data::Subset>(o.dataset, std::move(indices));
                          });
}

void add_transforms(Targets& targets) {
  targets.transforms.add("ToTensor", "Images of bytes to floats in [0, 1], channels first.",
                         [] { return data::TransformPtr(data::ToTensor()); });
  using N = data::NormalizeOptions;
  targets.transforms.add<N>(
      "Normalize", "(x - mean) / std, channel by channel.",
      {config::required("mean", &N::mean, "one for all channels, or one per channel"),
       config::required("std", &N::std, "as many as mean has, none zero")},
      [](const N& o) { return data::TransformPtr(data::Normalize(o)); });
  targets.transforms.add("Flatten", "Each sample as one row.", [] {
    return data::TransformPtr(
        data::Lambda([](const torch::Tensor& batch) { return batch.flatten(1); }));
  });
}

struct RandomOptions {
  std::uint64_t seed = 0;
};

void add_samplers(Targets& targets) {
  targets.samplers.add("SequentialSampler", "0, 1, 2, …", [](std::int64_t size) {
    return std::make_shared<const data::SequentialSampler>(size);
  });
  using R = RandomOptions;
  targets.samplers.add<R>("RandomSampler", "Another order each epoch.",
                          {{"seed", &R::seed, "the epoch is added to it"}},
                          [](const R& o, std::int64_t size) {
                            return std::make_shared<const data::RandomSampler>(
                                size, data::RandomSamplerOptions{.seed = o.seed});
                          });
  using D = data::DistributedSamplerOptions;
  targets.samplers.add<D>(
      "DistributedSampler", "The same order and padding as PyTorch's.",
      {{"num_replicas", &D::num_replicas, "default: the run's shards"},
       {"shuffle", &D::shuffle, "another order each epoch"},
       {"seed", &D::seed, "the epoch is added to it"},
       {"drop_last", &D::drop_last, "drop the tail instead of repeating samples"}},
      [](const D& o, std::int64_t size) {
        return std::make_shared<const data::DistributedSampler>(size, o);
      });
}

struct ListsOptions {
  std::vector<std::string> keys;
};

void add_collates(Targets& targets) {
  targets.collates.add("stack", "Samples of equal shapes get a new first dimension.",
                       [] { return data::stack(); });
  using P = data::PadOptions;
  targets.collates.add<P>(
      "pad", "Extends sequences of different lengths to the longest one of the batch.",
      {{"keys", &P::keys, "of the sequences; none: all tensors that have a dimension"},
       {"value", &P::value, "what they are extended with"},
       {"values", &P::values, "the same for single keys"},
       {"length_suffix", &P::length_suffix, "of the lengths' keys; empty: no lengths"},
       {"mask_suffix", &P::mask_suffix, "of the masks' keys; empty: no masks"},
       {"batch_first", &P::batch_first, "whether samples come before time"}},
      [](const P& o) { return data::pad(o); });
  using L = ListsOptions;
  targets.collates.add<L>("lists", "Keeps tensors separate, as a list with one per sample.",
                          {config::required("keys", &L::keys, "of these tensors")},
                          [](const L& o) { return data::lists(o.keys); });
}

}  // namespace

void add_datasets(Targets& targets) {
  add_mnist(targets, "MNIST", "60,000 and 10,000 handwritten digits of 28 x 28.", data::mnist);
  add_mnist(targets, "FashionMNIST", "60,000 and 10,000 clothes of 28 x 28; Debian packages them.",
            data::fashion_mnist);
  add_mnist(targets, "KMNIST", "60,000 and 10,000 old Japanese letters of 28 x 28.", data::kmnist);
  using T = data::TensorFileOptions;
  targets.datasets.add<T>(
      "TensorFile",
      "Tensors that torch.save wrote as a dictionary. Rows are samples, or the tensors of a list.",
      {config::required("path", &T::path, "of the file"),
       {"features", &T::features, "key of the model's input in the file"},
       {"targets", &T::targets, "key of the expected output in the file; none: no targets"},
       {"keys", &T::keys, "instead of these two: keys of the batch to keys in the file"},
       {"transform", &T::transform, "of the features"},
       {"allow_non_finite", &T::allow_non_finite, "accept NaN and infinite values"}},
      [](const T& o) { return data::tensor_file(o); });
  using N = NoiseOptions;
  targets.datasets.add<N>(
      "Noise", "Normal noise, to try out a model before there is data.",
      {{"samples", &N::samples, "how many"},
       config::required("shape", &N::shape, "of a sample"),
       {"classes", &N::classes, "targets are random classes below it; default: the features, flat"},
       {"seed", &N::seed, "of the noise"}},
      [](const N& o) { return noise(o); });
  add_subset(targets);
  add_transforms(targets);
  add_samplers(targets);
  add_collates(targets);
}

}  // namespace lockstep::recipe

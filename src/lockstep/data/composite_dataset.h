// Data sets around other data sets. Derive from WrapperDataset to change the samples of another
// one:
//
//   class Doubled : public ls::data::WrapperDataset {
//    public:
//     explicit Doubled(ls::data::DatasetPtr dataset)
//         : WrapperDataset("Doubled", std::move(dataset)) {}
//     ls::Batch sample_in_epoch(std::int64_t index,
//                               const ls::data::EpochKey& key) const override {
//       ls::Batch sample = inner().sample_in_epoch(index, key);
//       sample.set("features", sample["features"] * 2);
//       return sample;
//     }
//     torch::Tensor column(std::string_view key) const override {
//       return key == "features" ? torch::Tensor() : WrapperDataset::column(key);
//     }
//   };
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep::data {

// Around one or several data sets. How their samples are combined decides most functions, so a
// class around several overrides those of Dataset that WrapperDataset overrides.
class CompositeDataset : public Dataset {
 public:
  // Without an epoch: as in the first epoch of a run with the default seed.
  Batch sample(std::int64_t index) const final { return sample_in_epoch(index, {}); }
  Batch gather(std::span<const std::int64_t> indices, Batch reuse) const final;

  Batch sample_in_epoch(std::int64_t index, const EpochKey& key) const override = 0;
  // Stacks samples, so that a class that overrides only sample_in_epoch() is right. Override it to
  // make a batch in one pass.
  Batch gather_in_epoch(std::span<const std::int64_t> indices, const EpochKey& key,
                        Batch reuse) const override;

  bool is_random() const override;               // if one of them is
  std::uint64_t random_layers() const override;  // the most that one of them has
  std::vector<DatasetPtr> parts() const final { return datasets_; }

 protected:
  // `name` is for messages. Throws ConfigError if there is no data set, if one is null, or if one
  // is an IterableDataset.
  CompositeDataset(std::string_view name, std::vector<DatasetPtr> datasets);

  const std::vector<DatasetPtr>& datasets() const { return datasets_; }

 private:
  std::vector<DatasetPtr> datasets_;
};

// Around one data set, and like it in everything that is not overridden. If the values of a key
// change, override column() for this key, and class_names() if it is "targets". If samples are
// numbered in another way, override all functions that have an index or a size. If samples get
// random parts of their own, override is_random() and random_layers().
class WrapperDataset : public CompositeDataset {
 public:
  std::int64_t size() const override { return inner().size(); }
  Batch sample_in_epoch(std::int64_t index, const EpochKey& key) const override;
  std::string name_of(std::int64_t index) const override { return inner().name_of(index); }
  std::vector<std::string> class_names() const override { return inner().class_names(); }
  torch::Tensor column(std::string_view key) const override { return inner().column(key); }
  bool is_here(std::int64_t index) const override { return inner().is_here(index); }
  std::vector<std::int64_t> examples(std::int64_t count) const override;
  const Scaling& scaling() const override { return inner().scaling(); }

  const DatasetPtr& dataset() const { return datasets().front(); }

 protected:
  WrapperDataset(std::string_view name, DatasetPtr dataset);

  const Dataset& inner() const { return *dataset(); }
};

// The key for random parts that a wrapper adds. `layer` is random_layers() of the data set inside:
// that one draws the numbers of the same samples, and another seed makes the numbers independent.
EpochKey key_of_layer(const EpochKey& key, std::uint64_t layer);

}  // namespace lockstep::data

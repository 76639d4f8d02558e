// Where samples come from. Derive from Dataset to make your own:
//
//   class Squares : public ls::data::Dataset {
//     std::int64_t size() const override { return 100; }
//     ls::Batch sample(std::int64_t i) const override {
//       return {{"features", torch::tensor({float(i)})}, {"targets", torch::tensor({float(i *
//       i)})}};
//     }
//   };
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/batch.h"
#include "lockstep/data/random.h"

namespace lockstep::data {

class Dataset;
struct Scaling;
using DatasetPtr = std::shared_ptr<const Dataset>;

// Must be safe to read from several threads at once: a loader may have several.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual std::int64_t size() const = 0;

  // One sample. Its tensors have no batch dimension. 0 <= index < size().
  virtual Batch sample(std::int64_t index) const = 0;

  // Many samples as one batch. By default it stacks sample(i). Override it if the samples can be
  // gathered in one pass. A loader with a `collate` calls sample() instead. `reuse` is a batch that
  // no other code holds, or an empty one. Its memory may be overwritten, and its content is
  // undefined.
  virtual Batch gather(std::span<const std::int64_t> indices, Batch reuse) const;

  // The same in an epoch. A loader calls these two. They are for data sets whose samples have
  // random parts, and for those that contain another data set. By default they call sample() and
  // gather(). The stack that gather() makes by default then has samples of the epoch. Derive from
  // RandomDataset or WrapperDataset rather than override them.
  virtual Batch sample_in_epoch(std::int64_t index, const EpochKey& key) const;
  virtual Batch gather_in_epoch(std::span<const std::int64_t> indices, const EpochKey& key,
                                Batch reuse) const;

  // Whether a sample may differ from epoch to epoch. Then it cannot be kept in a cache.
  virtual bool is_random() const { return false; }

  // How many times random parts were added to a sample, one data set around the other. All of them
  // know the same seed, epoch and sample, so each must draw from a seed of its own (key_of_layer).
  virtual std::uint64_t random_layers() const { return is_random() ? 1 : 0; }

  // Names a sample in messages: "sample 17", or with the file that it is read from.
  virtual std::string name_of(std::int64_t index) const;

  // The names of the classes that "targets" has, by number. Empty if they are not known.
  virtual std::vector<std::string> class_names() const { return {}; }

  // The values of one key for all samples, [size(), ...], if they can be told without reading the
  // samples; else an undefined tensor. Samplers ask for the classes ("targets").
  virtual torch::Tensor column(std::string_view key) const;

  // Whether this process can read the sample. It cannot if the sample is on another host.
  virtual bool is_here(std::int64_t) const { return true; }

  // Up to `count` samples that this process can read, for a look at the data before a run. By
  // default the first ones that are here.
  virtual std::vector<std::int64_t> examples(std::int64_t count) const;

  // How the samples are scaled, so that predictions can be scaled back. By default not at all.
  virtual const Scaling& scaling() const;

  // The data sets that the samples come from, if this one is around others; else none.
  virtual std::vector<DatasetPtr> parts() const { return {}; }

 protected:
  // Stacks sample_in_epoch().
  Batch stack_in_epoch(std::span<const std::int64_t> indices, const EpochKey& key,
                       Batch reuse) const;
};

// A data set whose samples have random parts, or differ from epoch to epoch:
//
//   class Crops : public ls::data::RandomDataset {
//     std::int64_t size() const override { return 100; }
//     ls::Batch sample(ls::data::SampleContext& context) const override {
//       const auto at = context.random.below(32);  // another crop in each epoch
//       return {{"features", signals_[context.index].narrow(0, at, 64)}};
//     }
//   };
//
// Draw all random numbers from the context, and samples do not depend on threads, workers or
// prefetch.
class RandomDataset : public Dataset {
 public:
  virtual Batch sample(SampleContext& context) const = 0;

  bool is_random() const override { return true; }

  // Without an epoch: as in the first epoch of a run with the default seed.
  Batch sample(std::int64_t index) const final { return sample_in_epoch(index, {}); }
  Batch gather(std::span<const std::int64_t> indices, Batch reuse) const final;

  Batch sample_in_epoch(std::int64_t index, const EpochKey& key) const final;
  // Stacks samples. Override it to make a batch in one pass.
  Batch gather_in_epoch(std::span<const std::int64_t> indices, const EpochKey& key,
                        Batch reuse) const override;
};

}  // namespace lockstep::data

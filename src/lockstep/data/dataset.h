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

#include "lockstep/data/batch.h"

namespace lockstep::data {

// Must be safe to read from several threads at once: a loader may prefetch.
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
};

using DatasetPtr = std::shared_ptr<const Dataset>;

}  // namespace lockstep::data

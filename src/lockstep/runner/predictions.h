// The outputs of predict_loader: a range for one process, and a function for several workers. See
// docs/decisions/prediction.md.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <optional>
#include <string_view>

#include "lockstep/comm/communicator.h"
#include "lockstep/data/loader.h"
#include "lockstep/train/model.h"

namespace lockstep {

// Each batch is computed when it is requested.
class Predictions {
 public:
  using Predict = std::function<Batch(const Batch&)>;

  Predictions(Model model, data::BatchStream stream, Predict predict);

  // The next batch's outputs; nothing at the end.
  std::optional<Batch> next();

  // The remaining outputs under `key`, concatenated along the first dimension. Throws DataError if
  // there is no batch left, or if batches differ in another dimension.
  torch::Tensor concat(std::string_view key);

  class Iterator {
   public:
    using difference_type = std::ptrdiff_t;
    using value_type = Batch;

    explicit Iterator(Predictions& owner) : owner_(&owner) { ++*this; }
    Batch& operator*() const { return *owner_->current_; }
    Iterator& operator++() {
      owner_->current_ = owner_->next();
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return !owner_->current_; }

   private:
    Predictions* owner_;
  };

  Iterator begin() { return Iterator(*this); }
  std::default_sentinel_t end() const { return {}; }

 private:
  Model model_;
  data::BatchStream stream_;
  Predict predict_;
  std::optional<Batch> current_;
};

struct JointPrediction {
  data::Loader loader;
  std::uint64_t seed = 42;
  Predictions::Predict predict;              // called on every rank, without gradients
  std::function<bool(Batch& outputs)> take;  // called on rank 0; false ends the prediction
};

// Collective. Rank r of n predicts the batches r, r + n, r + 2n, … of the loader. Rank 0 gives the
// outputs of all ranks to `take`, in the order of the loader; their tensors are on the CPU. It
// holds the outputs of n batches at a time. Throws DataError if the ranks have different numbers of
// batches.
void predict_together(const JointPrediction& job, comm::Communicator& communicator);

}  // namespace lockstep

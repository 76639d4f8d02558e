// What the loss of a batch is a mean over. The number itself does not show it, and it decides how
// the losses and the gradients of a batch's parts are combined into those of the whole batch. So
// the caller states it together with the loss:
//
//   A mean over the samples of the batch:
//     state.set_loss(loss);
//   A mean over the elements that count:
//     state.set_loss(loss, ls::mean_over(mask.sum().item<double>()));
//   A sum, which was not divided by anything:
//     state.set_loss(loss, ls::sum_over_samples());
#pragma once

#include <torch/types.h>

namespace lockstep {

struct LossOver {
  enum class Kind {
    kSamples,  // a mean over the samples of the batch
    kWeight,   // a mean over `weight`
    kSum,      // a sum: the loss of a whole batch is the sum of those of its parts
    kMixed,    // a sum of losses with different weights; cannot be computed from parts of a batch
  };

  Kind kind = Kind::kSamples;
  double weight = 0;  // for kWeight: how many targets count, or the sum of their class weights

  friend bool operator==(const LossOver&, const LossOver&) = default;
};

inline LossOver mean_over_samples() {
  return {};
}

// A weight of 0 means that nothing in the batch counts. Its loss is then not shown and has no
// gradient.
inline LossOver mean_over(double weight) {
  return {.kind = LossOver::Kind::kWeight, .weight = weight};
}

inline LossOver sum_over_samples() {
  return {.kind = LossOver::Kind::kSum};
}

// A loss module that knows more than its result derives from it, in addition to
// torch::nn::Module; one of your own may do so, too. A Criterion that is made of the module asks
// it.
class StatedLoss {
 public:
  virtual ~StatedLoss() = default;

  // What the loss of these is a mean over.
  virtual LossOver over(const torch::Tensor& /*outputs*/, const torch::Tensor& /*targets*/) const {
    return mean_over_samples();
  }

  // Whether it compares samples of a batch with each other, or sums over them before it divides.
  // Then the loss of a whole batch is not the mean of the losses of its shards. Each shard has a
  // loss of its own, and a run with several shards warns.
  virtual bool mixes_samples() const { return false; }
};

}  // namespace lockstep

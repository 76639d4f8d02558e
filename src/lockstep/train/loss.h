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

}  // namespace lockstep

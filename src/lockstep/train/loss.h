// What the loss of a batch is a mean over. The number itself does not show it, and it decides how
// the losses and the gradients of a batch's parts make those of the whole batch. So it is said
// together with the loss:
//
//   state.set_loss(loss);                                    // a mean over the samples of the
//   batch state.set_loss(loss, ls::mean_over(mask.sum().item<double>()));   // over what counts in
//   it state.set_loss(loss, ls::sum_over_samples());            // a sum: it was divided by nothing
#pragma once

namespace lockstep {

struct LossOver {
  enum class Kind {
    kSamples,  // a mean over the samples of the batch
    kWeight,   // a mean over `weight`
    kSum,      // a sum: the loss of a whole batch is the sum of those of its parts
    kMixed,    // a sum of losses with different weights, which parts of a batch cannot make up
  };

  Kind kind = Kind::kSamples;
  double weight = 0;  // of kWeight: targets that count, or the sum of their class weights

  friend bool operator==(const LossOver&, const LossOver&) = default;
};

inline LossOver mean_over_samples() {
  return {};
}

// 0: nothing in the batch counts. Its loss is then not shown and has no gradient.
inline LossOver mean_over(double weight) {
  return {.kind = LossOver::Kind::kWeight, .weight = weight};
}

inline LossOver sum_over_samples() {
  return {.kind = LossOver::Kind::kSum};
}

}  // namespace lockstep

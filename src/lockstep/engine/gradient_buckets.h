// Gradients that are reduced while backward() still computes others, for workers that have to send
// them: parameters are put into buckets from the last to the first, as backward() comes to them,
// and a bucket goes off when the gradients of all its parameters are there. Always in the same
// order, on every worker: one whose parameter the loss did not use waits for the end of backward().
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/optim/flat_parameters.h"

namespace lockstep {

struct BucketOptions {
  int leaves = 1;
  // What the first sets of gradients hold when all gradients are there (comm::RunningSums); the
  // last of them is filled last. Empty: each set holds one of this rank's leaves.
  std::vector<comm::TreeNode> nodes = {};
  std::int64_t bytes = 8 << 20;
};

// While armed, another collective of the communicator waits for the buckets that have gone off
// before it. Both outlive this.
class GradientBuckets {
 public:
  GradientBuckets(optim::FlatParameters& parameters, comm::Communicator& communicator,
                  const BucketOptions& options);
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  // Whether there is something to overlap: with a single bucket there is not.
  bool worth_it() const;

  // Directly before the last backward() of an update.
  void arm();
  bool armed() const;

  // After it, or without it: the sums are in the first sets, with the marks of what was used
  // (FlatParameters::write_marks) in front. Throws what the reduction threw.
  void finish();

 private:
  class BucketState;
  std::shared_ptr<BucketState> state_;  // hooks of the model's parameters hold it, too
};

}  // namespace lockstep

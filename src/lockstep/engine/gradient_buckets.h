// Reduces gradients while backward() still computes other gradients, for workers that do not share
// memory. Parameters are put into buckets from the last to the first, which is the order in which
// backward() reaches them. A bucket is sent when the gradients of all its parameters are complete.
// The order of the buckets is the same on every worker. A bucket with a parameter that the loss did
// not use, and all buckets after it, wait for the end of backward().
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/optim/flat_parameters.h"

namespace lockstep {

struct BucketOptions {
  int leaves = 1;
  // The nodes that the first sets of gradients hold when all gradients are complete
  // (comm::RunningSums). The last of these sets is filled last. Empty: each set holds one of this
  // rank's leaves.
  std::vector<comm::TreeNode> nodes = {};
  std::int64_t bytes = 8 << 20;
  Wire wire = Wire::kFp32;  // how gradients are rounded and sent
};

// While it is armed, any other collective of the communicator waits for the buckets that were sent
// before it. The parameters and the communicator must outlive this object.
class GradientBuckets {
 public:
  GradientBuckets(optim::FlatParameters& parameters, comm::Communicator& communicator,
                  const BucketOptions& options);
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  // Whether reductions can overlap with backward(). A single bucket cannot.
  bool worth_it() const;

  // Call it directly before the last backward() of an update.
  void arm();
  bool armed() const;

  // Call it after that backward(), or instead of it if there is none. The sums are then in the
  // first sets. In front of them are the marks of the parameters that were used
  // (FlatParameters::write_marks). Throws what the reduction threw.
  void finish();

 private:
  class BucketState;
  std::shared_ptr<BucketState> state_;  // hooks of the parameters point to it, too
};

}  // namespace lockstep

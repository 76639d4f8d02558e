// A data set that scales its samples, for tests of recipe.
#pragma once

#include <torch/torch.h>

#include "lockstep/data/scaling.h"

namespace lockstep::recipe::testing {

// [1, 4] samples, which are all scaled by the given number.
class Thousands : public data::ScaledDataset {
 public:
  explicit Thousands(double scale = 1000) : one_{data::Normalization::kStandard, {0.5}, {scale}} {}

  std::int64_t size() const override { return 8; }
  Batch sample(std::int64_t index) const override {
    const torch::Tensor row = torch::full({1, 4}, 0.1 * static_cast<double>(index));
    return {{"features", row}, {"targets", row.flatten()}};
  }
  const data::Scaling& scaling() const override { return scaling_; }

 private:
  data::ChannelScaling one_;
  data::Scaling scaling_{.features = one_, .targets = one_};
};

}  // namespace lockstep::recipe::testing

// The 3-D convolutional network for turbulence.
//
//   ls::science::CNN3d estimator({.n_epochs = 100, .logdir = "logs", .ddp = true});
//   estimator.train({{"train", {data.train, {.batch_size = 16}}}, {"valid", {data.valid,
//   {.batch_size = 16}}}});
#pragma once

#include <torch/nn/modules/container/sequential.h>

#include "lockstep/science/network.h"

namespace lockstep::science {

// Three convolutions D to 2D to 2D to 4D channels with kernel 2, stride 2 and padding 1, each with
// a max pool of 2 (padding 1 after the first two), ReLU before the second and third, and a head of
// Linear(…, 8D), ReLU, Linear(8D, outputs). The convolutions reduce a cube of side 16 to one point.
// For other sizes, the first Linear has as many inputs as are left. Throws DataError if samples are
// not 3-D or are too small.
torch::nn::Sequential make_cnn3d(const FieldShape& shape);

using CNN3dConfig = NetworkConfig;

class CNN3d : public Network {
 public:
  explicit CNN3d(CNN3dConfig config = {}) : Network(std::move(config)) {}
  std::string name() const override { return "CNN3d"; }

 protected:
  Model make_model(const FieldShape& shape) const override { return make_cnn3d(shape); }
  Criterion criterion() const override;
};

}  // namespace lockstep::science

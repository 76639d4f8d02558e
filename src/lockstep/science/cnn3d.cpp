#include "lockstep/science/cnn3d.h"

#include <fmt/ranges.h>
#include <torch/nn/modules.h>

#include "lockstep/base/error.h"

namespace lockstep::science {
namespace {

namespace nn = torch::nn;

// The length of a side after a convolution or pool with kernel 2 and stride 2.
std::int64_t halved(std::int64_t side, std::int64_t padding) {
  return (side + 2 * padding) / 2;
}

}  // namespace

torch::nn::Sequential make_cnn3d(const FieldShape& shape) {
  if (shape.size.size() != 3) {
    throw DataError("CNN3d: expected samples of three dimensions, got [{}]",
                    fmt::join(shape.size, ", "));
  }
  std::int64_t points = 1;
  for (std::int64_t side : shape.size) {
    for (const std::int64_t pool_padding : {1, 1, 0}) {
      side = halved(side, 1);             // the convolution
      side = halved(side, pool_padding);  // the pool
    }
    if (side < 1) {
      throw DataError("CNN3d: cubes of [{}] are too small", fmt::join(shape.size, ", "));
    }
    points *= side;
  }
  const std::int64_t d = shape.channels;
  const auto conv = [](std::int64_t in, std::int64_t out) {
    return nn::Conv3d(nn::Conv3dOptions(in, out, 2).stride(2).padding(1));
  };
  const auto pool = [](std::int64_t padding) {
    return nn::MaxPool3d(nn::MaxPool3dOptions(2).padding(padding));
  };
  // Layers are made one by one, so that their weights are drawn in the order of the layers.
  nn::Sequential network;
  network->push_back(conv(d, 2 * d));
  network->push_back(pool(1));
  network->push_back(nn::ReLU());
  network->push_back(conv(2 * d, 2 * d));
  network->push_back(pool(1));
  network->push_back(nn::ReLU());
  network->push_back(conv(2 * d, 4 * d));
  network->push_back(pool(0));
  network->push_back(nn::Flatten());
  network->push_back(nn::Linear(4 * d * points, 8 * d));
  network->push_back(nn::ReLU());
  network->push_back(nn::Linear(8 * d, shape.outputs));
  return network;
}

Criterion CNN3d::criterion() const {
  return nn::SmoothL1Loss();
}

}  // namespace lockstep::science

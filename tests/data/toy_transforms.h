// Small transforms of samples.
#pragma once

#include <cstdint>

#include "lockstep/base/error.h"
#include "lockstep/data/transform.h"

namespace lockstep::data {

// A random part of the first dimension. It is moved in the same way for a mask.
class RandomPart : public SampleTransform {
 public:
  explicit RandomPart(std::int64_t length) : length_(length) {}

  torch::Tensor apply(const torch::Tensor& sample, Draw& draw) const override {
    if (sample.dim() == 0 || sample.size(0) < length_) throw DataError("RandomPart: too short");
    return sample.narrow(0, draw.random.below(sample.size(0) - length_ + 1), length_);
  }
  bool is_random() const override { return true; }

 private:
  std::int64_t length_;
};

// Adds a random number, which a mask does not need, but draws.
class RandomOffset : public SampleTransform {
 public:
  torch::Tensor apply(const torch::Tensor& sample, Draw& draw) const override {
    const double offset = draw.random.uniform();
    return draw.is_mask ? sample : sample + offset;
  }
  bool is_random() const override { return true; }
};

// Reverses the first dimension.
class Reverse : public SampleTransform {
 public:
  torch::Tensor apply(const torch::Tensor& sample, Draw&) const override { return sample.flip(0); }
};

}  // namespace lockstep::data

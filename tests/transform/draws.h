// Random transforms of single samples.
#pragma once

#include <gtest/gtest.h>

#include "lockstep/data/transform.h"

namespace lockstep::data::testing {

inline Draw draw_of(std::int64_t sample, bool is_mask = false) {
  return {.random = SampleRandom({.seed = 7, .epoch = 2}, sample), .is_mask = is_mask};
}

// The result for one sample.
inline torch::Tensor applied(const SampleTransform& transform, const torch::Tensor& image,
                             std::int64_t sample, bool is_mask = false) {
  Draw draw = draw_of(sample, is_mask);
  return transform.apply(image, draw);
}

// A mask must use as many random numbers as its image, or what follows would differ. `image` and
// `mask` have the same height and width.
inline void expect_equal_draws(const SampleTransform& transform, const torch::Tensor& image,
                               const torch::Tensor& mask) {
  EXPECT_TRUE(transform.is_random());
  for (std::int64_t sample = 0; sample < 40; ++sample) {
    Draw of_image = draw_of(sample);
    Draw of_mask = draw_of(sample, true);
    transform.apply(image, of_image);
    transform.apply(mask, of_mask);
    ASSERT_EQ(of_image.random.bits(), of_mask.random.bits()) << "sample " << sample;
  }
}

// For transforms that move pixels by kNearest: a mask with the values of the image must end up as
// the image.
inline void expect_same_on_mask(const SampleTransform& transform, const torch::Tensor& image) {
  for (std::int64_t sample = 0; sample < 10; ++sample) {
    EXPECT_TRUE(
        torch::equal(applied(transform, image, sample), applied(transform, image, sample, true)))
        << "sample " << sample;
  }
}

// For colours and noise.
inline void expect_mask_unchanged(const SampleTransform& transform, const torch::Tensor& mask) {
  for (std::int64_t sample = 0; sample < 10; ++sample) {
    EXPECT_TRUE(torch::equal(applied(transform, mask, sample, true), mask)) << "sample " << sample;
  }
}

}  // namespace lockstep::data::testing

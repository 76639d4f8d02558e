#include "lockstep/data/sample_chain.h"

#include <gtest/gtest.h>

#include "tests/data/toy_transforms.h"

namespace lockstep::data {
namespace {

Draw draw_of(std::int64_t sample, bool is_mask = false) {
  return {.random = SampleRandom({}, sample), .is_mask = is_mask};
}

TEST(SampleChain, SplitsAfterTheLastStepForSamples) {
  const SampleChain chain(Compose(
      {Compose({RandomPart(2), ToTensor()}), Reverse(), Normalize({.mean = {0.5}, .std = {0.5}})}));
  EXPECT_TRUE(chain.has_sample_steps());
  EXPECT_TRUE(chain.is_random());
  EXPECT_EQ(chain.sample_steps().size(), 3U);
  const torch::Tensor ones = torch::ones({1, 1, 2, 2});
  EXPECT_TRUE(torch::equal(chain.batch_steps().apply(ones), ones));  // (1 - 0.5) / 0.5
}

TEST(SampleChain, OfStepsForBatchesHasNoneForSamples) {
  const SampleChain chain(Compose({ToTensor(), Normalize({.mean = {0.5}, .std = {0.5}})}));
  EXPECT_FALSE(chain.has_sample_steps());
  EXPECT_FALSE(chain.is_random());
  const torch::Tensor black = torch::zeros({1, 2, 2}, torch::kUInt8);
  EXPECT_TRUE(torch::equal(chain.batch_steps().apply(black), torch::full({1, 1, 2, 2}, -1.0F)));
}

TEST(SampleChain, WithoutATransformChangesNothing) {
  const SampleChain chain{TransformPtr()};
  EXPECT_FALSE(chain.has_sample_steps());
  EXPECT_FALSE(chain.batch_steps());
  Draw draw = draw_of(0);
  const torch::Tensor sample = torch::arange(4);
  EXPECT_TRUE(torch::equal(chain.apply_to_sample(sample, draw), sample));
}

TEST(SampleChain, IsRandomOnlyIfAStepIs) {
  EXPECT_FALSE(SampleChain(Reverse()).is_random());
  EXPECT_TRUE(SampleChain(Compose({Reverse(), RandomPart(1)})).is_random());
}

TEST(SampleChain, GivesAStepForBatchesABatchOfOne) {
  const SampleChain chain(Compose({ToTensor(), Reverse()}));
  Draw draw = draw_of(0);
  const torch::Tensor image = torch::full({2, 4, 3}, 255, torch::kUInt8);
  EXPECT_TRUE(torch::equal(chain.apply_to_sample(image, draw), torch::ones({3, 2, 4})));
}

TEST(SampleChain, DrawsFromTheSample) {
  const SampleChain chain(Compose({RandomOffset(), RandomPart(4)}));
  const auto result = [&](std::int64_t sample) {
    Draw draw = draw_of(sample);
    return chain.apply_to_sample(torch::arange(100, torch::kFloat32), draw);
  };
  EXPECT_TRUE(torch::equal(result(3), result(3)));
  EXPECT_FALSE(torch::equal(result(3), result(4)));
}

TEST(SampleChain, MovesAMaskAsTheImageAndKeepsItsValues) {
  const SampleChain chain(
      Compose({RandomOffset(), Lambda([](const torch::Tensor& batch) { return batch * 2; }),
               RandomPart(4)}));
  const torch::Tensor values = torch::arange(100, torch::kFloat64);
  Draw image = draw_of(7);
  Draw mask = draw_of(7, /*is_mask=*/true);
  const torch::Tensor changed = chain.apply_to_sample(values, image);
  const torch::Tensor kept = chain.apply_to_sample(values, mask);
  // The offset is below 1, so half of a changed value, rounded down, is the original one.
  EXPECT_TRUE(torch::equal((changed / 2).floor(), kept));
}

}  // namespace
}  // namespace lockstep::data

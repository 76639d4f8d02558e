#include "lockstep/data/sample_stack.h"

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "tests/data/error_text.h"
#include "tests/data/toy_transforms.h"

namespace lockstep::data {
namespace {

torch::Tensor stacked_by(const TransformPtr& steps, const std::vector<torch::Tensor>& samples,
                         const Batch& reuse = {}) {
  const SampleChain chain(Compose({Reverse(), steps}));
  SampleStack stack(chain, {.key = "x", .count = samples.size(), .reuse = reuse});
  for (const torch::Tensor& sample : samples) stack.add(sample);
  return stack.finish();
}

std::vector<torch::Tensor> byte_images(torch::IntArrayRef shape) {
  std::vector<torch::Tensor> images;
  for (int i = 0; i < 3; ++i) images.push_back(torch::randint(0, 256, shape, torch::kUInt8));
  return images;
}

TEST(SampleStack, HasTheBitsOfTheStepsOnTheStackedBatch) {
  const Normalize one({.mean = {0.1307}, .std = {0.3081}});
  const Normalize three({.mean = {0.1, 0.2, 0.3}, .std = {0.5, 0.6, 0.7}});
  const auto flat = Lambda([](const torch::Tensor& batch) { return batch.flatten(1); });
  for (const std::vector<torch::Tensor>& images : {byte_images({9, 11}), byte_images({9, 11, 3})}) {
    std::vector<TransformPtr> chains = {Lambda([](const torch::Tensor& batch) { return batch; }),
                                        ToTensor(),
                                        Compose({ToTensor(), one}),
                                        Compose({ToTensor(), one, flat}),
                                        Cast(torch::kInt64),
                                        Cast(torch::kFloat64)};
    if (images.front().dim() == 3) chains.push_back(Compose({ToTensor(), three}));
    for (const TransformPtr& steps : chains) {
      const torch::Tensor expected = steps.apply(torch::stack(images));
      const torch::Tensor got = stacked_by(steps, images);
      EXPECT_EQ(got.scalar_type(), expected.scalar_type());
      EXPECT_TRUE(torch::equal(got, expected));
    }
  }
}

TEST(SampleStack, TakesPartsOfLargerImages) {
  std::vector<torch::Tensor> parts;
  for (const torch::Tensor& image : byte_images({9, 11, 3})) {
    parts.push_back(image.narrow(0, 2, 4).narrow(1, 3, 5));
  }
  EXPECT_TRUE(torch::equal(stacked_by(ToTensor(), parts), ToTensor().apply(torch::stack(parts))));
}

TEST(SampleStack, UsesMemoryAgain) {
  const Batch reuse{{"x", torch::zeros({3, 1, 9, 11})}};
  EXPECT_EQ(stacked_by(ToTensor(), byte_images({9, 11}), reuse).data_ptr(), reuse["x"].data_ptr());
  EXPECT_NE(stacked_by(ToTensor(), byte_images({9, 12}), reuse).data_ptr(), reuse["x"].data_ptr());
}

TEST(SampleStack, RefusesAnotherShape) {
  EXPECT_THAT(error_text<DataError>([] {
                stacked_by(ToTensor(), {torch::zeros({2, 3}), torch::zeros({2, 4})});
              }),
              testing::StartsWith("Float [2, 4], but that of the first sample of the batch is "
                                  "Float [2, 3]; expected equal shapes"));
  EXPECT_THROW(stacked_by(ToTensor(), {torch::zeros({2}), torch::zeros({2}, torch::kFloat64)}),
               DataError);
}

TEST(SampleStack, LetsTheTransformSayWhatItExpected) {
  EXPECT_THAT(error_text<DataError>([] { stacked_by(ToTensor(), byte_images({5})); }),
              testing::HasSubstr("ToTensor: expected bytes or floats in [B, H, W]"));
}

}  // namespace
}  // namespace lockstep::data

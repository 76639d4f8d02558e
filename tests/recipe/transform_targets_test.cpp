#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/data/dataset.h"
#include "lockstep/recipe/targets.h"
#include "tests/recipe/support.h"

namespace lockstep::recipe {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::node;

torch::Tensor applied_by_name(const std::string& text, const torch::Tensor& sample) {
  const data::TransformPtr made = targets().transforms.make(node(text));
  data::Draw draw{.random = data::SampleRandom({}, 0)};
  return dynamic_cast<const data::SampleTransform&>(*made.operator->()).apply(sample, draw);
}

TEST(ImageTransforms, AreMadeByName) {
  const torch::Tensor image = torch::arange(10 * 12 * 3).reshape({10, 12, 3}).to(torch::kUInt8);
  const auto size = [&](const std::string& text) {
    return applied_by_name(text, image).sizes().vec();
  };
  using Sizes = std::vector<std::int64_t>;
  EXPECT_EQ(size("{Resize: {size: [5, 6], interpolation: bicubic}}"), (Sizes{5, 6, 3}));
  EXPECT_EQ(size("{Resize: {size: 5, max_size: 7}}"), (Sizes{5, 6, 3}));
  EXPECT_EQ(size("{CenterCrop: {size: 4}}"), (Sizes{4, 4, 3}));
  EXPECT_EQ(size("{RandomResizedCrop: {size: 8, scale: [0.5, 1]}}"), (Sizes{8, 8, 3}));
  EXPECT_EQ(size("{Pad: {padding: [1, 2], padding_mode: edge}}"), (Sizes{14, 14, 3}));
  EXPECT_EQ(size("Grayscale"), (Sizes{10, 12, 1}));
  for (const std::string text :
       {"RandomHorizontalFlip", "{RandomVerticalFlip: {probability: 1}}",
        "{RandomRotation: {degrees: 10, interpolation: bilinear}}",
        "{RandomAffine: {degrees: 0, translate: [0.1, 0.1], scale: [0.9, 1.1], shear: 5}}",
        "{ColorJitter: {brightness: 0.4, hue: [-0.1, 0.1]}}", "RandomGrayscale",
        "{GaussianBlur: {kernel_size: 3, sigma: 1}}", "TrivialAugmentWide"}) {
    EXPECT_EQ(size(text), (Sizes{10, 12, 3})) << text;
  }
  EXPECT_EQ(
      applied_by_name("{RandomErasing: {probability: 1, noise: true}}", torch::zeros({3, 10, 10}))
          .sizes(),
      (torch::IntArrayRef{3, 10, 10}));
  EXPECT_EQ(targets().transforms.make(node("{RandomCrop: {size: 8, padding: 2}}"))->steps().size(),
            2U);
  EXPECT_EQ(targets()
                .transforms.make(node("{OneHot: {classes: 4}}"))
                .apply(torch::tensor({1, 3}))
                .sizes(),
            (torch::IntArrayRef{2, 4}));
}

TEST(ImageTransforms, MistakesAreNamed) {
  EXPECT_THAT(error_of([] { targets().transforms.make(node("{Resize: {size: 0}}")); }),
              HasSubstr("all positive"));
  EXPECT_THAT(error_of([] {
                targets().transforms.make(node("{Resize: {size: 4, interpolation: bicubik}}"));
              }),
              HasSubstr("bicubic"));
  EXPECT_THAT(error_of([] { targets().transforms.make(node("{OneHot: {}}")); }),
              HasSubstr("classes is missing"));
}

TEST(BatchTransforms, AreMadeByName) {
  for (const std::string text :
       {"{Mixup: {alpha: 0.4, classes: 3, per_sample: true, add: false}}", "{CutMix: {classes: 3}}",
        "{LabelSmoothing: {smoothing: 0.1, classes: 3}}"}) {
    const data::BatchTransform transform = targets().batch_transforms.make(node(text));
    data::SampleRandom random({}, 0);
    const Batch batch = transform(
        {{"features", torch::rand({2, 3, 8, 8})}, {"targets", torch::tensor({0, 2})}}, random);
    EXPECT_EQ(batch["targets"].sizes(), (torch::IntArrayRef{2, 3})) << text;
    EXPECT_TRUE(batch.contains("labels")) << text;
  }
}

}  // namespace
}  // namespace lockstep::recipe

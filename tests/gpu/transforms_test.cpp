// Transforms of a batch that is on a GPU already, as BatchTransformCallback and
// SelfSupervisedRunner give them.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/data/transform.h"
#include "lockstep/transform/color.h"
#include "lockstep/transform/crop.h"
#include "lockstep/transform/mix.h"
#include "lockstep/transform/one_hot.h"
#include "lockstep/transform/pad.h"
#include "lockstep/transform/resample.h"
#include "tests/support/gpu.h"

namespace lockstep::data {
namespace {

class TransformsOfAGpu : public OneGpu {};

const torch::Device kGpu(torch::kCUDA, 0);

TEST_F(TransformsOfAGpu, GiveTheBitsOfTheCpu) {
  const torch::Tensor bytes = torch::randint(0, 256, {4, 12, 10, 3}, torch::kUInt8);
  const torch::Tensor floats = torch::rand({4, 3, 12, 10});
  const std::vector<std::pair<TransformPtr, torch::Tensor>> cases = {
      {CenterCrop({.size = {8, 8}}), bytes},
      {Resize({.size = {6, 5}}), bytes},
      {Resize({.size = {6, 5}}), floats},
      {Grayscale(GrayscaleOptions{}), bytes},
      {Pad({.padding = {2}, .fill = {1, 2, 3}}), bytes},
      {Pad({.padding = {2}, .padding_mode = PaddingMode::kReflect}), floats},
      {OneHot({.classes = 4}), torch::tensor({3, 0, 1})},
      {Normalize({.mean = {0.5, 0.4, 0.3}, .std = {0.25, 0.5, 2}}), floats}};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto& [transform, batch] = cases[i];
    for (int turn = 0; turn < 2; ++turn) {  // the second one finds constants of the first
      const torch::Tensor result = transform.apply(batch.to(kGpu));
      EXPECT_EQ(result.device(), kGpu) << i;
      EXPECT_TRUE(torch::allclose(result.cpu().to(torch::kFloat64),
                                  transform.apply(batch).to(torch::kFloat64), 1e-6, 1e-6))
          << i;
    }
  }
}

TEST_F(TransformsOfAGpu, AnImageOnItIsRefusedByWhatReadsItsValues) {
  const Window window{.height = 4, .width = 4, .size = {2, 2}};
  EXPECT_THROW(resample(torch::zeros({3, 4, 4}, kGpu), window), DataError);
  EXPECT_THROW(equalize(torch::zeros({4, 4, 3}, torch::dtype(torch::kUInt8).device(kGpu))),
               DataError);
}

TEST_F(TransformsOfAGpu, BatchesAreMixedOnIt) {
  const Batch batch{{"features", torch::rand({4, 3, 8, 8}, kGpu)},
                    {"targets", torch::tensor({0, 1, 2, 1}, kGpu)}};
  SampleRandom random({.seed = 3, .epoch = 1}, 0);
  for (const bool per_sample : {false, true}) {
    const Batch mixed = Mixup({.classes = 3, .per_sample = per_sample})(batch, random);
    EXPECT_EQ(mixed["features"].device(), kGpu);
    EXPECT_EQ(mixed["targets"].device(), kGpu);
    EXPECT_NEAR(mixed["targets"].sum().item<double>(), 4, 1e-5);
  }
  const Batch cut = CutMix({.classes = 3})(batch, random);
  EXPECT_EQ(cut["targets"].device(), kGpu);
}

}  // namespace
}  // namespace lockstep::data

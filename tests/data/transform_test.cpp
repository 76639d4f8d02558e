#include "lockstep/data/transform.h"

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "tests/data/error_text.h"

namespace lockstep::data {
namespace {

using ::testing::HasSubstr;

torch::Tensor all_bytes() {
  return torch::arange(256, torch::kUInt8).view({2, 8, 16});
}

TEST(ToTensor, ScalesGreyImages) {
  const torch::Tensor result = ToTensor().apply(all_bytes());
  EXPECT_EQ(result.sizes(), (torch::IntArrayRef{2, 1, 8, 16}));
  EXPECT_TRUE(torch::equal(result.flatten(), torch::arange(256, torch::kFloat32).div(255)));
}

TEST(ToTensor, PutsChannelsFirst) {
  const torch::Tensor colours = torch::arange(24, torch::kUInt8).view({1, 2, 4, 3});
  const torch::Tensor result = ToTensor().apply(colours);
  EXPECT_EQ(result.sizes(), (torch::IntArrayRef{1, 3, 2, 4}));
  EXPECT_EQ(result[0][2][1][3].item<float>(), 23.0F / 255.0F);
  EXPECT_EQ(result[0][0][0][1].item<float>(), 3.0F / 255.0F);
}

TEST(ToTensor, DoesNotScaleFloats) {
  EXPECT_TRUE(torch::equal(ToTensor().apply(torch::ones({2, 4, 4})), torch::ones({2, 1, 4, 4})));
}

TEST(ToTensor, SaysWhatItCannotDo) {
  EXPECT_THAT(error_text<DataError>([] {
                ToTensor().apply(torch::zeros({4, 2}, torch::kUInt8));
              }),
              HasSubstr("expected bytes or floats in [B, H, W] or [B, H, W, C], got Byte [4, 2]"));
  EXPECT_THAT(error_text<DataError>([] {
                ToTensor().apply(torch::zeros({4, 2, 2}, torch::kInt64));
              }),
              HasSubstr("got Long [4, 2, 2]"));
}

TEST(ToTensor, RefusesChannelsFirst) {
  EXPECT_THAT(
      error_text<DataError>([] {
        ToTensor().apply(torch::zeros({2, 3, 32, 32}, torch::kUInt8));
      }),
      HasSubstr("expected channels last, [B, H, W, C], got Byte [2, 3, 32, 32], which looks like "
                "[B, C, H, W]; permute the data to channels last"));
  EXPECT_THAT(error_text<DataError>([] {
                ToTensor().apply(torch::zeros({2, 1, 8, 8}));
              }),
              HasSubstr("floats with channels first need no ToTensor"));
  // Images that are three or four pixels high, and batches of three grey ones.
  EXPECT_EQ(ToTensor().apply(torch::zeros({2, 3, 32, 3}, torch::kUInt8)).size(1), 3);
  EXPECT_EQ(ToTensor().apply(torch::zeros({3, 32, 32}, torch::kUInt8)).size(1), 1);
}

TEST(Images, LookLikeOneLayoutOrNone) {
  EXPECT_TRUE(looks_channels_last({32, 32, 3}));
  EXPECT_FALSE(looks_channels_first({32, 32, 3}));
  EXPECT_TRUE(looks_channels_first({3, 32, 32}));
  EXPECT_FALSE(looks_channels_last({3, 32, 32}));
  EXPECT_FALSE(looks_channels_last({16, 4, 4})) << "few pixels of many channels";
  EXPECT_FALSE(looks_channels_last({32, 32}));
}

TEST(Normalize, WorksChannelByChannel) {
  const torch::Tensor images = torch::ones({2, 2, 3, 3});
  const torch::Tensor result = Normalize({.mean = {0.5, 2}, .std = {0.25, 4}}).apply(images);
  EXPECT_TRUE(torch::equal(result.select(1, 0), torch::full({2, 3, 3}, 2.0F)));
  EXPECT_TRUE(torch::equal(result.select(1, 1), torch::full({2, 3, 3}, -0.25F)));
  EXPECT_TRUE(torch::equal(images, torch::ones({2, 2, 3, 3})));
}

TEST(Normalize, RefusesWhatMakesNoSense) {
  EXPECT_THROW(Normalize({.mean = {0.1, 0.2}, .std = {0.3}}), ConfigError);
  EXPECT_THROW(Normalize({}), ConfigError);
  EXPECT_THAT(error_text<ConfigError>([] { Normalize({.mean = {0.1}, .std = {0}}); }),
              HasSubstr("stds other than zero"));
  const Normalize two({.mean = {0.1, 0.2}, .std = {1, 1}});
  EXPECT_THAT(error_text<DataError>([&] {
                two.apply(torch::ones({4, 3, 2, 2}));
              }),
              HasSubstr("with C = 2, got Float [4, 3, 2, 2]"));
  EXPECT_THROW(two.apply(torch::ones({4, 2}, torch::kUInt8)), DataError);
}

TEST(Compose, RunsInOrderAndNests) {
  const TransformPtr transform =
      Compose({Compose({ToTensor(), Normalize({.mean = {0.5}, .std = {0.5}})}),
               Lambda([](const torch::Tensor& batch) { return batch.flatten(1); })});
  const torch::Tensor result = transform.apply(all_bytes());
  EXPECT_EQ(result.sizes(), (torch::IntArrayRef{2, 128}));
  EXPECT_EQ(result.min().item<float>(), -1);
  EXPECT_EQ(result.max().item<float>(), 1);
}

TEST(Compose, OfOneOrNoneIsThat) {
  EXPECT_TRUE(
      torch::equal(Compose({ToTensor()}).apply(all_bytes()), ToTensor().apply(all_bytes())));
  EXPECT_TRUE(torch::equal(Compose({}).apply(all_bytes()), all_bytes()));
}

TEST(TransformPtr, EmptyLeavesTheTensorAlone) {
  const torch::Tensor tensor = torch::ones({2});
  EXPECT_TRUE(TransformPtr().apply(tensor).is_same(tensor));
}

TEST(Cast, Converts) {
  EXPECT_EQ(Cast(torch::kInt64).apply(all_bytes()).scalar_type(), torch::kInt64);
}

TEST(Lambda, RefusesAnEmptyFunction) {
  EXPECT_THROW(Lambda(nullptr), ConfigError);
}

TEST(Fuse, TakesWhatAGatherCanDoAndLeavesTheRest) {
  const Normalize normalize({.mean = {0.5}, .std = {0.25}});
  const FusedTransform fused =
      fuse(Compose({Compose({ToTensor()}), normalize, normalize, Cast(torch::kFloat64)}));
  const auto* floats = std::get_if<BytesToFloat>(&fused.conversion);
  ASSERT_NE(floats, nullptr);
  EXPECT_THAT(floats->mean, testing::ElementsAre(0.5F));
  EXPECT_THAT(floats->std, testing::ElementsAre(0.25F));
  EXPECT_EQ(fused.rest.size(), 2U);
}

TEST(Fuse, DoesNotReorder) {
  // If a gather cannot do a step, it cannot do the steps after it either.
  const FusedTransform fused =
      fuse(Compose({Lambda([](const torch::Tensor& batch) { return batch; }), ToTensor()}));
  EXPECT_TRUE(std::holds_alternative<BytesAsIs>(fused.conversion));
  EXPECT_EQ(fused.rest.size(), 2U);
  EXPECT_TRUE(std::holds_alternative<BytesToInt64>(fuse(Cast(torch::kInt64)).conversion));
  EXPECT_TRUE(std::holds_alternative<BytesAsIs>(fuse(Cast(torch::kInt32)).conversion));
}

// The meta device stands for a GPU.
TEST(Normalize, StaysOnTheDevice) {
  const Normalize normalize({.mean = {0.5, 2}, .std = {0.25, 4}});
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(normalize.apply(torch::empty({4, 2, 3}, torch::kMeta)).is_meta());
    EXPECT_EQ(
        normalize.apply(torch::empty({4, 2, 3}, torch::dtype(torch::kFloat64).device(torch::kMeta)))
            .scalar_type(),
        torch::kFloat64);
  }
  const torch::Tensor image = torch::ones({1, 2, 3}).requires_grad_();
  {
    const c10::InferenceMode inference;
    normalize.apply(torch::ones({1, 2, 3}));
  }
  normalize.apply(image).sum().backward();
  EXPECT_EQ(image.grad()[0][1][2].item<float>(), 0.25F);
}

}  // namespace
}  // namespace lockstep::data

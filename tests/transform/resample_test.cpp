#include "lockstep/transform/resample.h"

#include <limits>

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "tests/data/error_text.h"
#include "tests/transform/goldens.h"

namespace lockstep::data {
namespace {

using testing::byte_image;
using testing::expect_golden;
using testing::float_image;
using ::testing::HasSubstr;

struct Mode {
  std::string name;
  Interpolation interpolation;
};
const std::vector<Mode> kModes = {{"nearest", Interpolation::kNearest},
                                  {"bilinear", Interpolation::kBilinear},
                                  {"bicubic", Interpolation::kBicubic}};

Window whole(const ImageSize& image, const ImageSize& size, Interpolation interpolation) {
  return {.height = static_cast<double>(image.height),
          .width = static_cast<double>(image.width),
          .size = size,
          .interpolation = interpolation};
}

TEST(Resample, BytesHaveTheNumbersOfPillow) {
  const torch::Tensor colours = byte_image({23, 31, 3});
  const torch::Tensor grey = byte_image({23, 31});
  for (const auto& [name, mode] : kModes) {
    const std::string prefix = "resample/" + name;
    expect_golden(resample(colours, whole({23, 31}, {9, 40}, mode)), prefix + "/smaller");
    expect_golden(resample(colours, whole({23, 31}, {30, 13}, mode)), prefix + "/larger");
    const Window crop{
        .top = 4, .left = 5, .height = 15, .width = 20, .size = {8, 9}, .interpolation = mode};
    expect_golden(resample(colours, crop), prefix + "/crop");
    const Window fraction{.top = 2.25,
                          .left = 3.75,
                          .height = 17.5,
                          .width = 20.125,
                          .size = {7, 11},
                          .interpolation = mode};
    expect_golden(resample(colours, fraction), prefix + "/fraction");
    const Window part{
        .top = 1, .left = 2, .height = 20, .width = 25, .size = {7, 33}, .interpolation = mode};
    expect_golden(resample(grey, part), prefix + "/grey");
    const Window between{
        .top = 0.5, .left = 2.5, .height = 20, .width = 25, .size = {7, 33}, .interpolation = mode};
    expect_golden(resample(grey, between), prefix + "/grey/fraction");
  }
  expect_golden(
      resample(byte_image({23, 31, 4}), whole({23, 31}, {10, 12}, Interpolation::kBilinear)),
      "resample/bilinear/four");
}

TEST(Resample, FloatsHaveTheNumbersOfTorch) {
  const torch::Tensor image = float_image({2, 13, 17});
  for (const auto& [name, mode] : kModes) {
    if (mode == Interpolation::kNearest) continue;
    for (const bool antialias : {false, true}) {
      Window window = whole({13, 17}, {5, 8}, mode);
      window.antialias = antialias;
      const std::string prefix = "resample/floats/" + name + (antialias ? "/antialias" : "/plain");
      expect_golden(resample(image, window), prefix + "/smaller");
      window.size = {19, 24};
      expect_golden(resample(image, window), prefix + "/larger");
    }
  }
}

TEST(Resample, BytesWithoutAntialiasHaveTheNumbersOfTorch) {
  for (const auto& [name, mode] : kModes) {
    if (mode == Interpolation::kNearest) continue;
    Window window = whole({23, 31}, {9, 13}, mode);
    window.antialias = false;
    expect_golden(resample(byte_image({23, 31, 3}), window), "resample/" + name + "/plain");
  }
}

TEST(Resample, AWindowIsACrop) {
  // Pixels outside of the window must not change the result.
  const torch::Tensor image = byte_image({20, 20, 3});
  torch::Tensor changed = torch::full_like(image, 255);
  changed.narrow(0, 4, 10).narrow(1, 6, 8).copy_(image.narrow(0, 4, 10).narrow(1, 6, 8));
  for (const auto& [name, mode] : kModes) {
    const Window window{
        .top = 4, .left = 6, .height = 10, .width = 8, .size = {5, 16}, .interpolation = mode};
    EXPECT_TRUE(torch::equal(resample(image, window), resample(changed, window))) << name;
  }
}

TEST(Resample, WithoutANewSizeItCutsOut) {
  const torch::Tensor image = byte_image({20, 20, 3});
  const torch::Tensor part =
      resample(image, {.top = 4, .left = 6, .height = 10, .width = 8, .size = {10, 8}});
  EXPECT_TRUE(torch::equal(part, image.narrow(0, 4, 10).narrow(1, 6, 8)));
  EXPECT_TRUE(part.is_contiguous());
  // An edge that is a pixel's except for rounding.
  EXPECT_TRUE(torch::equal(
      resample(image, {.top = 4.0000000001, .left = 6, .height = 10, .width = 8, .size = {10, 8}}),
      part));
}

TEST(Resample, ReadsNothingOutsideOfTheImage) {
  // With three channels four bytes are read at once. Under AddressSanitizer this fails if a byte
  // behind the image is read.
  const torch::Tensor image = byte_image({2, 5, 3});
  EXPECT_EQ(resample(image, whole({2, 5}, {7, 3}, Interpolation::kBicubic)).sizes(),
            (torch::IntArrayRef{7, 3, 3}));
}

TEST(Resample, NearestCopiesAnyType) {
  const torch::Tensor mask = torch::arange(6, torch::kInt64).reshape({2, 3}) * 1'000'000'000'000;
  const torch::Tensor larger = resample(mask, whole({2, 3}, {4, 6}, Interpolation::kNearest));
  EXPECT_TRUE(torch::equal(larger, mask.repeat_interleave(2, 0).repeat_interleave(2, 1)));
  const torch::Tensor image = float_image({2, 4, 6});
  EXPECT_TRUE(torch::equal(resample(image, whole({4, 6}, {8, 12}, Interpolation::kNearest)),
                           image.repeat_interleave(2, 1).repeat_interleave(2, 2)));
}

TEST(Resample, KeepsTheTypeOfFloats) {
  EXPECT_EQ(resample(float_image({1, 4, 4}).to(torch::kFloat64),
                     whole({4, 4}, {2, 2}, Interpolation::kBilinear))
                .scalar_type(),
            torch::kFloat64);
}

TEST(Resample, RefusesWhatIsNotInTheImage) {
  const torch::Tensor image = byte_image({8, 9});
  EXPECT_THAT(error_text<DataError>([&] {
                resample(image, {.top = 2, .height = 7, .width = 9, .size = {4, 4}});
              }),
              HasSubstr("expected a window inside the image of 8 x 9 (height x width), got 7 x 9 "
                        "from (2, 0) on"));
  EXPECT_THROW(resample(image, {.left = -1, .height = 7, .width = 9, .size = {4, 4}}), DataError);
  EXPECT_THROW(resample(image, {.height = 0, .width = 9, .size = {4, 4}}), DataError);
  EXPECT_THROW(
      resample(image,
               {.height = std::numeric_limits<double>::quiet_NaN(), .width = 9, .size = {4, 4}}),
      DataError);
  EXPECT_THROW(resample(image, {.height = 8, .width = 9, .size = {0, 4}}), DataError);
  EXPECT_THAT(error_text<DataError>([&] {
                resample(image.to(torch::kInt64), whole({8, 9}, {4, 4}, Interpolation::kBilinear));
              }),
              HasSubstr("got Long [8, 9]; other types are resized with nearest only"));
}

// The right half of an image.
class RightHalf : public WindowTransform {
 public:
  Window window(const ImageSize& image, Draw&) const override {
    return {.left = static_cast<double>(image.width) / 2,
            .height = static_cast<double>(image.height),
            .width = static_cast<double>(image.width) / 2,
            .size = {3, 5}};
  }
};

TEST(WindowTransform, MasksAreNotInterpolated) {
  const torch::Tensor image = byte_image({8, 10});
  Draw draw{.random = SampleRandom({}, 0)};
  const Window window{.left = 5, .height = 8, .width = 5, .size = {3, 5}};
  EXPECT_TRUE(torch::equal(RightHalf().apply(image, draw), resample(image, window)));
  draw.is_mask = true;
  Window nearest = window;
  nearest.interpolation = Interpolation::kNearest;
  EXPECT_TRUE(torch::equal(RightHalf().apply(image, draw), resample(image, nearest)));
  EXPECT_TRUE(torch::equal(RightHalf().apply(image.unsqueeze(0))[0], resample(image, window)));
}

TEST(Resample, RefusesAnImageThatIsNotOnTheCpu) {
  const Window window{.height = 4, .width = 4, .size = {2, 2}};
  EXPECT_THAT(error_text<DataError>([&] {
                resample(torch::empty({3, 4, 4}, torch::kMeta), window);
              }),
              HasSubstr("resample: expected an image in the memory of the CPU"));
}

}  // namespace
}  // namespace lockstep::data

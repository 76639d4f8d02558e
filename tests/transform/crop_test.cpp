#include "lockstep/transform/crop.h"

#include <set>

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "tests/data/error_text.h"
#include "tests/transform/draws.h"
#include "tests/transform/goldens.h"

namespace lockstep::data {
namespace {

using testing::applied;
using testing::byte_image;
using testing::draw_of;
using testing::expect_equal_draws;
using testing::expect_golden;
using testing::expect_same_on_mask;
using testing::float_image;
using ::testing::HasSubstr;

TEST(Resize, HasTheResultsOfTorchvision) {
  const torch::Tensor image = byte_image({20, 31, 3});
  expect_golden(applied(Resize({.size = {12, 9}}), image, 0), "resize/both");
  expect_golden(applied(Resize({.size = {9}}), image, 0), "resize/shorter");
  expect_golden(applied(Resize({.size = {9}}), byte_image({31, 20, 3}), 0), "resize/shorter/tall");
  expect_golden(applied(Resize({.size = {9}, .max_size = 11}), image, 0), "resize/max_size");
  expect_golden(
      applied(Resize({.size = {9, 13}, .interpolation = Interpolation::kBicubic}), image, 0),
      "resize/bicubic");
}

TEST(Resize, WorksOnABatch) {
  const torch::Tensor images = byte_image({3, 20, 31, 3});
  const torch::Tensor resized = Resize({.size = {12, 9}}).apply(images);
  EXPECT_EQ(resized.sizes(), (torch::IntArrayRef{3, 12, 9, 3}));
  EXPECT_TRUE(torch::equal(resized[1], applied(Resize({.size = {12, 9}}), images[1], 0)));
}

TEST(Resize, RefusesWhatMakesNoSense) {
  EXPECT_THROW(Resize({.size = {}}), ConfigError);
  EXPECT_THAT(error_text<ConfigError>([] {
                Resize({.size = {4, 5}, .max_size = 9});
              }),
              HasSubstr("max_size: expected it with one size, that of the shorter side, got 9 with "
                        "a height of 4 and a width of 5"));
  EXPECT_THAT(error_text<ConfigError>([] { Resize({.size = {9}, .max_size = 9}); }),
              HasSubstr("max_size: expected more than the shorter side's 9, got 9"));
}

TEST(Resize, OfAThinImageHasBounds) {
  Draw draw = draw_of(0);
  const ImageSize thin{.height = 1, .width = 4000};
  EXPECT_EQ(Resize({.size = {3}}).window(thin, draw).size,
            (ImageSize{.height = 3, .width = 12000}));
  // The shorter side would be 0.004 pixels.
  EXPECT_EQ(Resize({.size = {3}, .max_size = 16}).window(thin, draw).size,
            (ImageSize{.height = 1, .width = 16}));
  EXPECT_THAT(error_text<DataError>([&] {
                Resize({.size = {2'000'000'000}}).window({.height = 70'000, .width = 1}, draw);
              }),
              HasSubstr("expected a result of at most 2^30 pixels, got 140000000000000 x "
                        "2000000000 (height x width) from an image of 70000 x 1; set max_size"));
}

TEST(CenterCrop, HasTheResultsOfTorchvision) {
  const torch::Tensor image = byte_image({20, 31, 3});
  expect_golden(applied(CenterCrop({.size = {9, 8}}), image, 0), "center_crop");
  expect_golden(applied(CenterCrop({.size = {17, 14}}), image, 0), "center_crop/odd");
  EXPECT_THAT(error_text<DataError>([&] { applied(CenterCrop({.size = {21}}), image, 0); }),
              HasSubstr("expected an image of at least 21 x 21 (height x width), got 20 x 31; put "
                        "a Resize or a Pad before it"));
}

// The only step of a crop without padding.
const WindowTransform& window_of(const TransformPtr& step) {
  return dynamic_cast<const WindowTransform&>(*step.operator->());
}

TEST(RandomCrop, IsAWindowWithoutPadding) {
  const auto steps = RandomCrop({.size = {5, 6}}).steps();
  ASSERT_EQ(steps.size(), 1U);
  const WindowTransform& crop = window_of(steps[0]);
  std::set<std::pair<double, double>> places;
  for (std::int64_t sample = 0; sample < 500; ++sample) {
    Draw draw = draw_of(sample);
    const Window window = crop.window({.height = 7, .width = 9}, draw);
    EXPECT_EQ(window.size, (ImageSize{.height = 5, .width = 6}));
    places.emplace(window.top, window.left);
  }
  EXPECT_EQ(places.size(), 3U * 4U);
  EXPECT_EQ(places.rbegin()->first, 2);
  const torch::Tensor image = byte_image({7, 9, 3});
  expect_equal_draws(crop, image, image);
  expect_same_on_mask(crop, image);
  EXPECT_THROW(applied(crop, byte_image({4, 9}), 0), DataError);
}

TEST(RandomCrop, PadsFirst) {
  const auto steps = RandomCrop({.size = {8}, .padding = {2}, .fill = {9}}).steps();
  ASSERT_EQ(steps.size(), 2U);
  const auto& pad = dynamic_cast<const SampleTransform&>(*steps[0].operator->());
  const torch::Tensor padded = applied(pad, byte_image({8, 8, 3}), 0);
  EXPECT_EQ(padded.sizes(), (torch::IntArrayRef{12, 12, 3}));
  EXPECT_EQ(padded[0][0][0].item<int>(), 9);
  EXPECT_EQ(applied(window_of(steps[1]), padded, 0).sizes(), (torch::IntArrayRef{8, 8, 3}));
}

TEST(RandomResizedCrop, DrawsAreasAndShapesInTheirRanges) {
  const RandomResizedCrop crop({.size = {8}, .scale = {0.2, 0.6}, .ratio = {0.5, 2}});
  double smallest = 1;
  double largest = 0;
  for (std::int64_t sample = 0; sample < 1000; ++sample) {
    Draw draw = draw_of(sample);
    const Window window = crop.window({.height = 100, .width = 120}, draw);
    EXPECT_GE(window.top, 0);
    EXPECT_LE(window.top + window.height, 100);
    EXPECT_LE(window.left + window.width, 120);
    EXPECT_NEAR(std::log(window.width / window.height), 0, std::log(2) + 0.05);
    const double area = window.height * window.width / (100 * 120);
    smallest = std::min(smallest, area);
    largest = std::max(largest, area);
  }
  EXPECT_NEAR(smallest, 0.2, 0.02);
  EXPECT_NEAR(largest, 0.6, 0.02);
}

TEST(RandomResizedCrop, ResizesThePart) {
  const RandomResizedCrop crop({.size = {8}});
  const torch::Tensor image = byte_image({20, 31, 3});
  Draw draw = draw_of(3);
  const torch::Tensor expected = resample(image, crop.window({.height = 20, .width = 31}, draw));
  EXPECT_TRUE(torch::equal(applied(crop, image, 3), expected));
  expect_equal_draws(crop, image, byte_image({20, 31}));
  // What torchvision's resized_crop gives for a part.
  expect_golden(resample(image, {.top = 3, .left = 4, .height = 11, .width = 17, .size = {8, 8}}),
                "resized_crop");
}

TEST(RandomResizedCrop, TakesTheMiddleOfAnImageOfAnotherShape) {
  const RandomResizedCrop crop({.size = {8}, .scale = {1, 1}, .ratio = {1, 1}});
  Draw draw = draw_of(0);
  const Window wide = crop.window({.height = 10, .width = 30}, draw);
  EXPECT_EQ(wide.left, 10);
  EXPECT_EQ(wide.width, 10);
  const Window tall = crop.window({.height = 30, .width = 10}, draw);
  EXPECT_EQ(tall.top, 10);
  EXPECT_EQ(tall.height, 10);
  EXPECT_THROW(RandomResizedCrop({.size = {8}, .scale = {0, 1}}), ConfigError);
  EXPECT_THROW(RandomResizedCrop({.size = {8}, .ratio = {2, 1}}), ConfigError);
}

}  // namespace
}  // namespace lockstep::data

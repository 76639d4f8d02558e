#include "lockstep/transform/geometry.h"

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "tests/data/error_text.h"
#include "tests/transform/draws.h"
#include "tests/transform/goldens.h"

namespace lockstep::data {
namespace {

using testing::applied;
using testing::byte_image;
using testing::expect_equal_draws;
using testing::expect_golden;
using testing::expect_same_on_mask;
using testing::float_image;

const std::vector<std::pair<std::string, Interpolation>> kWarps = {
    {"nearest", Interpolation::kNearest}, {"bilinear", Interpolation::kBilinear}};

TEST(Flip, ReversesEitherAxis) {
  const std::vector<std::vector<std::int64_t>> shapes = {{5, 7}, {5, 7, 3}, {5, 7, 4}, {5, 7, 2}};
  for (const auto& shape : shapes) {
    const torch::Tensor image = byte_image(shape);
    EXPECT_TRUE(torch::equal(horizontal_flip(image), image.flip({1})));
    EXPECT_TRUE(torch::equal(vertical_flip(image), image.flip({0})));
  }
  const torch::Tensor floats = float_image({3, 5, 7});
  EXPECT_TRUE(torch::equal(horizontal_flip(floats), floats.flip({2})));
  EXPECT_TRUE(torch::equal(vertical_flip(floats), floats.flip({1})));
  const torch::Tensor view = byte_image({7, 5, 3}).transpose(0, 1);
  EXPECT_TRUE(torch::equal(horizontal_flip(view), view.flip({1})));
}

TEST(Rotate, HasTheValuesOfPillow) {
  const torch::Tensor image = byte_image({14, 17, 3});
  for (const auto& [name, interpolation] : kWarps) {
    const std::string prefix = "rotate/" + name + "/";
    const WarpOptions filled{.interpolation = interpolation, .fill = {7}};
    const WarpOptions black{.interpolation = interpolation};
    for (const auto& text : {"30", "-75.5", "90", "180", "400"}) {
      expect_golden(rotate(image, {.angle = std::stod(text)}, filled), prefix + text);
    }
    expect_golden(rotate(image, {.angle = 33, .expand = true}, black), prefix + "expand");
    expect_golden(rotate(image, {.angle = 90, .expand = true}, black), prefix + "expand/90");
    expect_golden(rotate(byte_image({12, 12, 3}), {.angle = 270}, black), prefix + "square");
    expect_golden(rotate(float_image({2, 11, 9}), {.angle = 20}, black), prefix + "floats");
  }
}

TEST(Affine, HasTheValuesOfPillow) {
  const torch::Tensor image = byte_image({14, 17, 3});
  for (const auto& [name, interpolation] : kWarps) {
    const std::string golden = "affine/" + name;
    const WarpOptions black{.interpolation = interpolation};
    expect_golden(affine(image,
                         {.angle = 20,
                          .translate = {.x = 2, .y = -3},
                          .scale = 1.3,
                          .shear = {.x = 10, .y = -5}},
                         {.interpolation = interpolation, .fill = {1, 2, 3}}),
                  golden);
    expect_golden(affine(image, {.translate = {.x = 3, .y = -2}}, black), golden + "/move");
    expect_golden(affine(image, {.shear = {.x = 25}, .center = Point{}}, black),
                  golden + "/center");
    expect_golden(
        affine(float_image({2, 11, 9}),
               {.angle = -40, .translate = {.x = 1, .y = 1}, .scale = 0.8, .shear = {.y = 12}},
               black),
        golden + "/floats");
  }
}

TEST(Warp, RefusesBicubic) {
  EXPECT_THAT(
      error_text<ConfigError>([] {
        rotate(byte_image({4, 4}), {.angle = 3}, {.interpolation = Interpolation::kBicubic});
      }),
      ::testing::HasSubstr("expected nearest or bilinear, got bicubic"));
  EXPECT_THROW(RandomRotation({.degrees = {5}, .interpolation = Interpolation::kBicubic}),
               ConfigError);
}

TEST(RandomFlips, HappenAsOftenAsAsked) {
  const torch::Tensor image = byte_image({4, 5});
  int horizontal = 0;
  int vertical = 0;
  for (std::int64_t sample = 0; sample < 2000; ++sample) {
    const bool flipped = torch::equal(
        applied(RandomHorizontalFlip({.probability = 0.25}), image, sample), image.flip({1}));
    horizontal += flipped ? 1 : 0;
    vertical += torch::equal(applied(RandomVerticalFlip(), image, sample), image.flip({0})) ? 1 : 0;
  }
  EXPECT_NEAR(horizontal, 500, 80);
  EXPECT_NEAR(vertical, 1000, 100);
  expect_equal_draws(RandomHorizontalFlip(), image, image);
  expect_same_on_mask(RandomHorizontalFlip(), image);
  expect_equal_draws(RandomVerticalFlip(), image, image);
  expect_same_on_mask(RandomVerticalFlip(), image);
  EXPECT_THROW(RandomHorizontalFlip({.probability = 2}), ConfigError);
  EXPECT_THROW(RandomVerticalFlip({.probability = -1}), ConfigError);
}

TEST(RandomRotation, MovesAMaskAsItsImage) {
  const torch::Tensor image = byte_image({9, 12});
  const RandomRotation rotation({.degrees = {40}});
  expect_equal_draws(rotation, image, image);
  expect_same_on_mask(rotation, image);
  EXPECT_FALSE(torch::equal(applied(rotation, image, 0), applied(rotation, image, 1)));
  // A mask has no colour, and its classes are not mixed.
  const RandomRotation smooth(
      {.degrees = {30, 40}, .interpolation = Interpolation::kBilinear, .fill = {99}});
  const torch::Tensor mask = torch::full({9, 12}, 3, torch::kInt64);
  const torch::Tensor turned = applied(smooth, mask, 0, true);
  EXPECT_TRUE(((turned == 3) | (turned == 0)).all().item<bool>());
  EXPECT_TRUE((turned == 0).any().item<bool>());
  EXPECT_THROW(RandomRotation({.degrees = {}}), ConfigError);
}

TEST(RandomAffine, DrawsInItsRanges) {
  const RandomAffine random(
      {.degrees = {-10, 20}, .translate = {0.1, 0.2}, .scale = {0.5, 1.5}, .shear = {-3, 3, 4, 5}});
  double highest = -100;
  for (std::int64_t sample = 0; sample < 1000; ++sample) {
    Draw draw = testing::draw_of(sample);
    const AffineParameters drawn = random.parameters({.height = 50, .width = 200}, draw.random);
    EXPECT_TRUE(drawn.angle >= -10 && drawn.angle < 20);
    EXPECT_LE(std::abs(drawn.translate.x), 20);
    EXPECT_LE(std::abs(drawn.translate.y), 10);
    EXPECT_EQ(drawn.translate.x, std::round(drawn.translate.x));
    EXPECT_TRUE(drawn.scale >= 0.5 && drawn.scale < 1.5);
    EXPECT_TRUE(drawn.shear.x >= -3 && drawn.shear.x < 3);
    EXPECT_TRUE(drawn.shear.y >= 4 && drawn.shear.y < 5);
    highest = std::max(highest, drawn.angle);
  }
  EXPECT_GT(highest, 19.5);
  const torch::Tensor image = byte_image({9, 12});
  expect_equal_draws(random, image, image);
  expect_same_on_mask(random, image);
}

TEST(RandomAffine, RefusesWhatMakesNoSense) {
  EXPECT_THROW(RandomAffine({.degrees = {1, 2, 3}}), ConfigError);
  EXPECT_THAT(
      error_text<ConfigError>([] { RandomAffine({.degrees = {1}, .translate = {0.5}}); }),
      ::testing::HasSubstr("RandomAffine: translate: expected {most x, most y}, got [0.5]"));
  EXPECT_THROW(RandomAffine({.degrees = {1}, .translate = {0.5, 2}}), ConfigError);
  EXPECT_THROW(RandomAffine({.degrees = {1}, .scale = {0, 2}}), ConfigError);
  EXPECT_THROW(RandomAffine({.degrees = {1}, .shear = {1, 2, 3}}), ConfigError);
}

TEST(Geometry, RefusesAnImageThatIsNotOnTheCpu) {
  const torch::Tensor image = torch::empty({3, 4, 4}, torch::kMeta);
  EXPECT_THAT(error_text<DataError>([&] { horizontal_flip(image); }),
              ::testing::HasSubstr("horizontal flip: expected an image in the memory of the CPU"));
  EXPECT_THAT(error_text<DataError>([&] { rotate(image, {.angle = 30}, {}); }),
              ::testing::HasSubstr("affine map: expected an image in the memory of the CPU"));
}

}  // namespace
}  // namespace lockstep::data

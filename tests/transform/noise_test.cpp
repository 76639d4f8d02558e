#include "lockstep/transform/noise.h"

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
using testing::expect_mask_unchanged;
using testing::float_image;
using ::testing::HasSubstr;

TEST(GaussianBlur, HasTheValuesOfTorchvision) {
  const torch::Tensor image = byte_image({10, 12, 3});
  const torch::Tensor floats = float_image({2, 8, 9});
  expect_golden(gaussian_blur(image, {.kernel_size = 3, .sigma = 0.8}), "blur/3");
  expect_golden(gaussian_blur(image, {.kernel_size = 7, .sigma = 2}), "blur/7");
  expect_golden(gaussian_blur(floats, {.kernel_size = 3, .sigma = 0.8}), "blur/3/floats");
  expect_golden(gaussian_blur(floats, {.kernel_size = 7, .sigma = 2}), "blur/7/floats");
  expect_golden(gaussian_blur(byte_image({10, 12}), {.kernel_size = 5, .sigma = 1.1}), "blur/grey");
}

TEST(GaussianBlur, DrawsItsStrength) {
  const torch::Tensor image = byte_image({10, 12, 3});
  const GaussianBlur blur({.kernel_size = 3, .sigma = {0.5, 2}});
  EXPECT_FALSE(torch::equal(applied(blur, image, 0), applied(blur, image, 1)));
  expect_equal_draws(blur, image, byte_image({10, 12}));
  expect_mask_unchanged(blur, byte_image({10, 12}));
  EXPECT_TRUE(torch::equal(applied(GaussianBlur({.kernel_size = 3, .sigma = {0.8}}), image, 5),
                           gaussian_blur(image, {.kernel_size = 3, .sigma = 0.8})));
  EXPECT_THROW(GaussianBlur({.kernel_size = 4}), ConfigError);
  EXPECT_THROW(GaussianBlur({.sigma = {0, 1}}), ConfigError);
}

TEST(GaussianNoise, IsThatOfTheSample) {
  const GaussianNoise noise({.std = 0.5});
  const torch::Tensor ones = torch::ones({1, 50, 50});
  const torch::Tensor first = applied(noise, ones, 0);
  EXPECT_NEAR(first.mean().item<double>(), 1, 0.05);
  EXPECT_NEAR(first.std().item<double>(), 0.5, 0.05);
  EXPECT_TRUE(torch::equal(first, applied(noise, ones, 0)));
  EXPECT_FALSE(torch::equal(first, applied(noise, ones, 1)));
  expect_equal_draws(noise, ones, byte_image({50, 50}));
  expect_mask_unchanged(noise, byte_image({50, 50}));
  EXPECT_THAT(error_text<DataError>([&] {
                applied(noise, byte_image({5, 5}), 0);
              }),
              HasSubstr("expected floats, got Byte [5, 5]; put it after ToTensor"));
  EXPECT_THROW(GaussianNoise({.std = 0}), ConfigError);
}

TEST(GaussianNoise, OfABatchIsThatOfTheStep) {
  const GaussianNoise noise({.std = 0.5});
  torch::manual_seed(3);
  const torch::Tensor batch = noise.apply(torch::ones({4, 5}));
  torch::manual_seed(3);
  EXPECT_TRUE(torch::equal(batch, torch::ones({4, 5}) + 0.5 * torch::randn({4, 5})));
}

TEST(Erase, ReplacesARectangle) {
  const torch::Tensor image = float_image({2, 5, 6});
  const torch::Tensor erased =
      erase(image, {.top = 1, .left = 2, .height = 3, .width = 2}, torch::full({1}, 9.0F));
  EXPECT_EQ((erased == 9).sum().item<std::int64_t>(), 2 * 3 * 2);
  EXPECT_EQ(erased[1][3][3].item<float>(), 9);
  EXPECT_EQ((image == 9).sum().item<std::int64_t>(), 0);
  EXPECT_THROW(erase(image, {.top = 3, .height = 3, .width = 1}, torch::ones({1})), DataError);
  EXPECT_THAT(error_text<DataError>([] {
                erase(byte_image({5, 6, 3}), {.height = 1, .width = 1}, torch::ones({1}));
              }),
              HasSubstr("expected floats [C, H, W], got Byte [5, 6, 3]; put it after ToTensor"));
}

TEST(RandomErasing, ErasesAreasInItsRange) {
  const torch::Tensor image = torch::ones({3, 40, 50});
  const RandomErasing random({.probability = 0.5, .scale = {0.1, 0.2}, .value = {5, 6, 7}});
  int erased = 0;
  for (std::int64_t sample = 0; sample < 400; ++sample) {
    const torch::Tensor result = applied(random, image, sample);
    const double area = (result[1] == 6).to(torch::kFloat64).mean().item<double>();
    if (area == 0) continue;
    ++erased;
    EXPECT_GE(area, 0.09);
    EXPECT_LE(area, 0.21);
  }
  EXPECT_NEAR(erased, 200, 50);
  expect_equal_draws(random, image, byte_image({40, 50}));
  expect_mask_unchanged(random, byte_image({40, 50}));
}

TEST(RandomErasing, MayBeNoise) {
  const torch::Tensor image = torch::zeros({1, 40, 40});
  const RandomErasing random({.probability = 1, .scale = {0.3, 0.3}, .noise = true});
  const torch::Tensor result = applied(random, image, 0);
  const torch::Tensor noise = result.masked_select(result != 0);
  EXPECT_NEAR(noise.std().item<double>(), 1, 0.2);
  EXPECT_TRUE(torch::equal(result, applied(random, image, 0)));
  expect_equal_draws(random, image, byte_image({40, 40}));
  // Numbers that are drawn afterwards do not depend on the option.
  const RandomErasing plain({.probability = 1, .scale = {0.3, 0.3}});
  Draw of_noise = draw_of(0);
  Draw of_value = draw_of(0);
  random.apply(image, of_noise);
  plain.apply(image, of_value);
  EXPECT_EQ(of_noise.random.bits(), of_value.random.bits());
  EXPECT_THROW(RandomErasing({.scale = {0.5, 2}}), ConfigError);
  EXPECT_THROW(RandomErasing({.value = {}}), ConfigError);
}

TEST(GaussianBlur, RefusesAnImageThatIsNotOnTheCpu) {
  EXPECT_THAT(error_text<DataError>([] {
                gaussian_blur(torch::empty({3, 8, 8}, torch::kMeta), {.kernel_size = 3});
              }),
              HasSubstr("GaussianBlur: expected an image in the memory of the CPU"));
}

}  // namespace
}  // namespace lockstep::data

#include "lockstep/transform/trivial_augment.h"

#include <set>
#include <string>

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
using ::testing::HasSubstr;

TEST(TrivialAugment, HasTheChangesOfTorchvision) {
  const std::vector<std::pair<std::string, double>> changes = {
      {"Identity", 0},      {"ShearX", 0.66},    {"ShearY", -0.33},   {"TranslateX", 4.9},
      {"TranslateY", -3.2}, {"Rotate", 40.5},    {"Brightness", 0.5}, {"Color", -0.7},
      {"Contrast", 0.9},    {"Sharpness", -0.6}, {"Posterize", 3},    {"Solarize", 110},
      {"AutoContrast", 0},  {"Equalize", 0}};
  EXPECT_EQ(augmentation_names().size(), changes.size());
  for (const auto& [name, magnitude] : changes) {
    expect_golden(augment(byte_image({16, 18, 3}), name, magnitude), "augment/" + name);
  }
  EXPECT_THAT(error_text<ConfigError>([] {
                augment(byte_image({4, 4}), "Colour", 0);
              }),
              HasSubstr("did you mean 'Color'?"));
}

TEST(TrivialAugment, ChoosesAmongAllChanges) {
  const torch::Tensor image = byte_image({40, 40, 3});
  int unchanged = 0;
  std::set<std::string> results;
  for (std::int64_t sample = 0; sample < 600; ++sample) {
    const torch::Tensor result = applied(TrivialAugmentWide(), image, sample);
    ASSERT_EQ(result.sizes(), image.sizes());
    unchanged += torch::equal(result, image) ? 1 : 0;
    results.emplace(static_cast<const char*>(result.data_ptr()), result.nbytes());
  }
  // Identity, AutoContrast, because the image has all levels already, and the weakest of each
  // change: about one in six.
  EXPECT_NEAR(unchanged, 105, 40);
  EXPECT_GT(results.size(), 200U);
}

TEST(TrivialAugment, MovesMasksWithTheirImages) {
  const torch::Tensor image = byte_image({20, 20, 3});
  expect_equal_draws(TrivialAugmentWide(), image, byte_image({20, 20}));
  int moved = 0;
  for (std::int64_t sample = 0; sample < 200; ++sample) {
    // The mask has the values of the image. Moves give the same result; colours leave the mask as
    // it is.
    const torch::Tensor mask = applied(TrivialAugmentWide(), image, sample, true);
    if (torch::equal(mask, image)) continue;
    ++moved;
    EXPECT_TRUE(torch::equal(mask, applied(TrivialAugmentWide(), image, sample)));
  }
  EXPECT_NEAR(moved, 200 * 5 / 14, 30);
}

TEST(TrivialAugment, RefusesWhatItCannotDo) {
  EXPECT_THAT(error_text<DataError>([] {
                applied(TrivialAugmentWide(), torch::ones({3, 8, 8}), 0);
              }),
              HasSubstr("expected bytes, got Float [3, 8, 8]; put it before ToTensor"));
  EXPECT_THROW(TrivialAugmentWide({.bins = 1}), ConfigError);
  EXPECT_THAT(error_text<ConfigError>(
                  [] { TrivialAugmentWide({.interpolation = Interpolation::kBicubic}); }),
              HasSubstr("interpolation: expected nearest or bilinear, got bicubic"));
  EXPECT_THAT(error_text<ConfigError>([] { TrivialAugmentWide({.fill = {}}); }),
              HasSubstr("TrivialAugmentWide: fill: expected at least one value, got none"));
}

}  // namespace
}  // namespace lockstep::data

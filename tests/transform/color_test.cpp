#include "lockstep/transform/color.h"

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
using testing::expect_mask_unchanged;
using testing::float_image;
using ::testing::HasSubstr;

struct FactorChange {
  std::string name;
  torch::Tensor (*change)(const torch::Tensor&, double);
  bool takes_floats = true;
};

TEST(Colors, HaveTheValuesOfPillowAndTorchvision) {
  const std::vector<FactorChange> changes = {{"brightness", adjust_brightness},
                                             {"contrast", adjust_contrast},
                                             {"saturation", adjust_saturation},
                                             {"sharpness", adjust_sharpness, false}};
  for (const auto& [name, change, takes_floats] : changes) {
    for (const std::string factor : {"0", "0.3", "1", "1.7"}) {
      const std::string golden = name + "/" + factor;
      expect_golden(change(byte_image({9, 11, 3}), std::stod(factor)), golden);
      if (takes_floats) {
        expect_golden(change(float_image({3, 6, 7}), std::stod(factor)), golden + "/floats");
      }
    }
    expect_golden(change(byte_image({9, 11}), 1.4), name + "/grey");
  }
}

TEST(Colors, DoNotDependOnTheNumberOfThreads) {
  const int threads = torch::get_num_threads();
  torch::manual_seed(5);
  for (int i = 0; i < 10; ++i) {
    const torch::Tensor image = torch::rand({3, 300, 500});
    torch::set_num_threads(1);
    const torch::Tensor expected = adjust_contrast(image, 0.5);
    for (const int more : {2, 3, 4}) {
      torch::set_num_threads(more);
      EXPECT_TRUE(torch::equal(adjust_contrast(image, 0.5), expected)) << more << " threads";
    }
    torch::set_num_threads(threads);
  }
}

TEST(Colors, TurnHues) {
  for (const std::string turn : {"-0.5", "-0.1", "0.0", "0.25"}) {
    expect_golden(adjust_hue(byte_image({9, 11, 3}), std::stod(turn)), "hue/" + turn);
    expect_golden(adjust_hue(float_image({3, 6, 7}), std::stod(turn)), "hue/" + turn + "/floats");
  }
  EXPECT_TRUE(torch::equal(adjust_hue(byte_image({9, 11}), 0.3), byte_image({9, 11})));
  EXPECT_THROW(adjust_hue(byte_image({9, 11, 3}), 0.6), ConfigError);
}

TEST(Colors, BecomeGrey) {
  const torch::Tensor image = byte_image({9, 11, 3});
  expect_golden(to_grayscale(image), "grayscale/1");
  expect_golden(to_grayscale(image, 3), "grayscale/3");
  expect_golden(to_grayscale(float_image({3, 6, 7})), "grayscale/1/floats");
  expect_golden(to_grayscale(float_image({3, 6, 7}), 3), "grayscale/3/floats");
  EXPECT_EQ(to_grayscale(byte_image({9, 11})).sizes(), (torch::IntArrayRef{9, 11}));
  EXPECT_EQ(to_grayscale(byte_image({9, 11}), 3).sizes(), (torch::IntArrayRef{9, 11, 3}));
  EXPECT_EQ(to_grayscale(float_image({1, 9, 11}), 3).sizes(), (torch::IntArrayRef{3, 9, 11}));
}

TEST(Colors, ChangeByTables) {
  const torch::Tensor image = byte_image({9, 11, 3});
  for (const int bits : {1, 4, 8}) {
    expect_golden(posterize(image, bits), "posterize/" + std::to_string(bits));
  }
  for (const std::string threshold : {"0", "99.5", "255"}) {
    expect_golden(solarize(image, std::stod(threshold)), "solarize/" + threshold);
  }
  const torch::Tensor dull = image.div(3, "floor") + 40;
  expect_golden(autocontrast(dull), "autocontrast");
  expect_golden(equalize(dull), "equalize/few");
  expect_golden(equalize(byte_image({40, 40, 3}).div(2, "floor")), "equalize");
  const torch::Tensor flat = torch::full({4, 4}, 77, torch::kUInt8);
  EXPECT_TRUE(torch::equal(autocontrast(flat), flat));
  EXPECT_TRUE(torch::equal(equalize(flat), flat));
}

TEST(Colors, RefuseOtherTensors) {
  EXPECT_THAT(error_text<DataError>([] {
                adjust_brightness(byte_image({9, 11, 4}), 1);
              }),
              HasSubstr("expected bytes or floats with 1 or 3 channels, got Byte [9, 11, 4]"));
  EXPECT_THAT(error_text<DataError>([] {
                posterize(float_image({3, 9, 9}), 4);
              }),
              HasSubstr("posterize: expected bytes, got Float [3, 9, 9]; put it before ToTensor"));
  EXPECT_THROW(adjust_contrast(byte_image({9, 11, 3}), -1), ConfigError);
  EXPECT_THROW(posterize(byte_image({9, 11, 3}), 9), ConfigError);
}

TEST(ColorJitter, ChangesInItsRangesAndInAnyOrder) {
  const torch::Tensor grey = torch::full({1, 1}, 100, torch::kUInt8);
  const ColorJitter brightness({.brightness = {0.5}});
  int darkest = 255;
  int brightest = 0;
  for (std::int64_t sample = 0; sample < 1000; ++sample) {
    const int value = applied(brightness, grey, sample).item<int>();
    darkest = std::min(darkest, value);
    brightest = std::max(brightest, value);
  }
  EXPECT_NEAR(darkest, 50, 2);
  EXPECT_NEAR(brightest, 149, 2);

  // With fixed factors only the order is random: 3 * 100 is cut off at 255, if that comes first.
  const ColorJitter fixed({.brightness = {3, 3}, .contrast = {0, 0}});
  const torch::Tensor image = torch::tensor({{0, 100}}, torch::kUInt8);
  int contrast_first = 0;
  for (std::int64_t sample = 0; sample < 1000; ++sample) {
    contrast_first += applied(fixed, image, sample)[0][0].item<int>() == 150 ? 1 : 0;
  }
  EXPECT_NEAR(contrast_first, 500, 80);
}

TEST(ColorJitter, LeavesMasksAlone) {
  const ColorJitter jitter(
      {.brightness = {0.4}, .contrast = {0.4}, .saturation = {0.4}, .hue = {0.1}});
  expect_equal_draws(jitter, byte_image({5, 6, 3}), byte_image({5, 6}));
  expect_mask_unchanged(jitter, byte_image({5, 6}));
  EXPECT_FALSE(torch::equal(applied(jitter, byte_image({5, 6, 3}), 0), byte_image({5, 6, 3})));
}

TEST(ColorJitter, RefusesWhatMakesNoSense) {
  EXPECT_THROW(ColorJitter({.brightness = {-1}}), ConfigError);
  EXPECT_THROW(ColorJitter({.contrast = {-1, 1}}), ConfigError);
  EXPECT_THROW(ColorJitter({.saturation = {1, 2, 3}}), ConfigError);
  EXPECT_THROW(ColorJitter({.hue = {0.6}}), ConfigError);
}

TEST(Grayscale, LeavesMasksAlone) {
  EXPECT_EQ(applied(Grayscale({.channels = 3}), byte_image({5, 6, 3}), 0).size(2), 3);
  EXPECT_EQ(Grayscale().apply(byte_image({2, 5, 6, 3})).sizes(), (torch::IntArrayRef{2, 5, 6, 1}));
  expect_mask_unchanged(Grayscale(), byte_image({5, 6, 3}));
  EXPECT_THROW(Grayscale({.channels = 2}), ConfigError);
}

TEST(RandomGrayscale, HappensAsOftenAsAsked) {
  const torch::Tensor image = byte_image({5, 6, 3});
  const RandomGrayscale random({.probability = 0.2});
  int changed = 0;
  for (std::int64_t sample = 0; sample < 1000; ++sample) {
    const torch::Tensor result = applied(random, image, sample);
    EXPECT_EQ(result.sizes(), image.sizes());
    changed += torch::equal(result, image) ? 0 : 1;
  }
  EXPECT_NEAR(changed, 200, 60);
  expect_equal_draws(random, image, byte_image({5, 6}));
  expect_mask_unchanged(random, image);
}

TEST(Colours, RefuseBytesThatAreNotOnTheCpu) {
  const torch::Tensor bytes =
      torch::empty({4, 4, 3}, torch::dtype(torch::kUInt8).device(torch::kMeta));
  EXPECT_THAT(error_text<DataError>([&] { equalize(bytes); }),
              HasSubstr("equalize: expected an image in the memory of the CPU"));
  EXPECT_THAT(error_text<DataError>([&] { adjust_brightness(bytes, 0.5); }),
              HasSubstr("brightness: expected an image in the memory of the CPU"));
  const torch::Tensor floats = torch::empty({3, 4, 4}, torch::kMeta);
  EXPECT_THAT(error_text<DataError>([&] { adjust_contrast(floats, 0.5); }),
              HasSubstr("contrast: expected an image in the memory of the CPU"));
  EXPECT_TRUE(adjust_saturation(floats, 0.5).is_meta());
}

}  // namespace
}  // namespace lockstep::data

#include "lockstep/image/pixels.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "tests/image/encoders.h"

namespace lockstep::data {
namespace {

TEST(Pixels, AreTurnedAsExifSays) {
  const torch::Tensor image = testing::gradient(4, 7);
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const torch::Tensor stored = testing::turned_back(image, orientation);
    EXPECT_TRUE(upright(stored, orientation).equal(image)) << orientation;
    EXPECT_EQ(upright(ImageSize{stored.size(0), stored.size(1)}, orientation), (ImageSize{4, 7}));
  }
}

TEST(Pixels, ABoxIsTurnedWithItsImage) {
  const Box box{.top = 1, .left = 2, .height = 2, .width = 4};
  const torch::Tensor image = testing::gradient(5, 9);
  const torch::Tensor part = image.narrow(0, 1, 2).narrow(1, 2, 4);
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const torch::Tensor stored = testing::turned_back(image, orientation);
    const ImageSize size{.height = stored.size(0), .width = stored.size(1)};
    const Box there = as_stored(box, size, orientation);
    const torch::Tensor stored_part = stored
                                          .narrow(0, static_cast<std::int64_t>(there.top),
                                                  static_cast<std::int64_t>(there.height))
                                          .narrow(1, static_cast<std::int64_t>(there.left),
                                                  static_cast<std::int64_t>(there.width));
    EXPECT_TRUE(upright(stored_part, orientation).equal(part)) << orientation;
    const Box back = upright(there, size, orientation);
    EXPECT_EQ(back.top, 1);
    EXPECT_EQ(back.left, 2);
    EXPECT_EQ(back.height, 2);
    EXPECT_EQ(back.width, 4);
  }
}

TEST(Pixels, Channels) {
  const auto pixel = [](std::vector<int> values) {
    return torch::tensor(values, torch::kUInt8).view({1, 1, -1});
  };
  const auto expect = [&](std::vector<int> stored, Channels channels, std::vector<int> wanted) {
    const torch::Tensor result = to_channels(pixel(stored), channels);
    EXPECT_TRUE(result.equal(pixel(wanted))) << result;
  };
  expect({7}, Channels::kRgb, {7, 7, 7});
  expect({7, 100}, Channels::kRgb, {7, 7, 7});
  expect({1, 2, 3}, Channels::kRgb, {1, 2, 3});
  expect({1, 2, 3, 0}, Channels::kRgb, {1, 2, 3});
  expect({7, 100}, Channels::kGrey, {7});
  // Pillow's convert("L").
  expect({255, 0, 0}, Channels::kGrey, {76});
  expect({0, 255, 0}, Channels::kGrey, {150});
  expect({0, 0, 255}, Channels::kGrey, {29});
  expect({255, 255, 255, 9}, Channels::kGrey, {255});
  expect({7}, Channels::kRgba, {7, 7, 7, 255});
  expect({7, 100}, Channels::kRgba, {7, 7, 7, 100});
  expect({1, 2, 3}, Channels::kRgba, {1, 2, 3, 255});
  expect({7, 100}, Channels::kStored, {7, 100});
  EXPECT_THROW(to_channels(pixel({1, 2, 3, 4, 5}), Channels::kRgb), DataError);
}

TEST(Pixels, GreyOf16Bits) {
  const torch::Tensor wide =
      torch::tensor({65535, 65535, 65535, 65535, 0, 0, 257, 2, 3}, torch::kInt32).view({1, 3, 3});
  const torch::Tensor grey = to_channels(wide, Channels::kGrey);
  EXPECT_EQ(grey.scalar_type(), torch::kInt32);
  // (257 * 19595 + 2 * 38470 + 3 * 7471 + 32768) / 65536 = 78.86…
  EXPECT_TRUE(grey.flatten().equal(torch::tensor({65535, 19595, 78}, torch::kInt32))) << grey;
  const torch::Tensor with_alpha = torch::cat({wide, torch::full_like(wide.narrow(2, 0, 1), 9)}, 2);
  EXPECT_TRUE(to_channels(with_alpha, Channels::kGrey).equal(grey));
}

TEST(Pixels, FloatsHaveChannelsFirst) {
  const torch::Tensor bytes = torch::tensor({0, 51, 255}, torch::kUInt8).view({1, 1, 3});
  EXPECT_TRUE(to_floats(bytes).allclose(torch::tensor({0.0F, 0.2F, 1.0F}).view({3, 1, 1})));
  const torch::Tensor wide =
      from_16_bits(torch::tensor({0, -1, 257}, torch::kInt16)).view({1, 3, 1});
  EXPECT_TRUE(wide.flatten().equal(torch::tensor({0, 65535, 257}, torch::kInt32)));
  EXPECT_TRUE(
      to_floats(wide).allclose(torch::tensor({0.0F, 1.0F, 257.0F / 65535}).view({1, 1, 3})));
}

TEST(Pixels, CmykAsPillowConvertsIt) {
  // Inverted: 255 is no ink. Image.new("CMYK", (1, 1), (c, m, y, k)).convert("RGB")
  const auto expect = [](std::vector<int> cmyk, std::vector<int> rgb) {
    const torch::Tensor inverted =
        (255 - torch::tensor(cmyk, torch::kInt32)).to(torch::kUInt8).view({1, 1, 4});
    const torch::Tensor wanted = torch::tensor(rgb, torch::kUInt8).view({1, 1, 3});
    EXPECT_TRUE(inverted_cmyk_to_rgb(inverted).equal(wanted)) << inverted_cmyk_to_rgb(inverted);
  };
  expect({0, 0, 0, 0}, {255, 255, 255});
  expect({0, 0, 0, 255}, {0, 0, 0});
  expect({255, 0, 0, 0}, {0, 255, 255});
  expect({0, 128, 255, 55}, {200, 100, 0});
}

}  // namespace
}  // namespace lockstep::data

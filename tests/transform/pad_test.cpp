#include "lockstep/transform/pad.h"

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "tests/data/error_text.h"
#include "tests/transform/draws.h"
#include "tests/transform/goldens.h"

namespace lockstep::data {
namespace {

using testing::applied;
using testing::byte_image;
using testing::expect_golden;
using testing::float_image;

TEST(Pad, HasTheResultsOfTorchvision) {
  const torch::Tensor image = byte_image({6, 7, 3});
  expect_golden(applied(Pad({.padding = {1, 2, 3, 4}, .fill = {9}}), image, 0), "pad/constant");
  expect_golden(applied(Pad({.padding = {2}, .fill = {1, 2, 3}}), image, 0), "pad/colour");
  for (const auto& [name, mode] :
       {std::pair{"edge", PaddingMode::kEdge}, std::pair{"reflect", PaddingMode::kReflect},
        std::pair{"symmetric", PaddingMode::kSymmetric}}) {
    expect_golden(applied(Pad({.padding = {3, 2}, .padding_mode = mode}), image, 0),
                  std::string("pad/") + name);
    expect_golden(pad_image(float_image({2, 4, 5}), {.left = 1, .top = 2, .right = 3, .bottom = 1},
                            {0}, mode),
                  std::string("pad/") + name + "/floats");
  }
}

TEST(Pad, FillsFloatsChannelByChannel) {
  const torch::Tensor padded = pad_image(torch::zeros({2, 2, 2}), {.left = 1}, {0.5, 0.25});
  EXPECT_EQ(padded.sizes(), (torch::IntArrayRef{2, 2, 3}));
  EXPECT_EQ(padded[0][1][0].item<float>(), 0.5F);
  EXPECT_EQ(padded[1][1][0].item<float>(), 0.25F);
  EXPECT_EQ(padded[1][1][1].item<float>(), 0.0F);
}

TEST(Pad, FillsMasksWithZeros) {
  const torch::Tensor mask = torch::full({2, 2}, 5, torch::kInt64);
  const torch::Tensor padded = applied(Pad({.padding = {1}, .fill = {1, 2, 3}}), mask, 0, true);
  EXPECT_EQ(padded.sum().item<std::int64_t>(), 20);
  EXPECT_EQ(padded.sizes(), (torch::IntArrayRef{4, 4}));
}

TEST(Pad, RefusesWhatItCannotDo) {
  EXPECT_THROW(Pad({.padding = {1, 2, 3}}), ConfigError);
  EXPECT_THROW(Pad({.padding = {-1}}), ConfigError);
  EXPECT_THROW(Pad({.padding = {1}, .fill = {}}), ConfigError);
  EXPECT_THROW(pad_image(byte_image({4, 4, 3}), {.left = 1}, {1, 2}), DataError);
  EXPECT_THAT(error_text<DataError>([] {
                pad_image(byte_image({4, 4}), {.left = 4}, {0}, PaddingMode::kReflect);
              }),
              ::testing::HasSubstr("expected at most 3 pixels above and below and 3 at the sides"));
  // The pixel at the edge counts, too.
  EXPECT_EQ(pad_image(byte_image({4, 4}), {.left = 4}, {0}, PaddingMode::kSymmetric).size(1), 8);
}

// The meta device stands for a GPU.
TEST(Pad, StaysOnTheDevice) {
  const torch::Tensor image = torch::empty({3, 8, 8}, torch::kMeta);
  EXPECT_TRUE(pad_image(image, {.left = 1, .top = 2}, {1, 2, 3}, PaddingMode::kConstant).is_meta());
}

}  // namespace
}  // namespace lockstep::data

#include "lockstep/transform/layout.h"

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "tests/data/error_text.h"

namespace lockstep::data {
namespace {

using ::testing::HasSubstr;

TEST(Layout, DependsOnTheType) {
  const ImageLayout bytes = layout_of(torch::zeros({5, 7, 3}, torch::kUInt8), "Test");
  EXPECT_EQ(bytes.size, (ImageSize{.height = 5, .width = 7}));
  EXPECT_EQ(bytes.channels, 3);
  EXPECT_EQ(bytes.column_dim(), 1);
  const ImageLayout floats = layout_of(torch::zeros({3, 5, 7}), "Test");
  EXPECT_EQ(floats.size, bytes.size);
  EXPECT_EQ(floats.channels, 3);
  EXPECT_EQ(floats.column_dim(), 2);
  EXPECT_EQ(image_size(torch::zeros({5, 7})), bytes.size);
  EXPECT_EQ(image_size(torch::zeros({5, 7}, torch::kInt64)), bytes.size);
}

TEST(Layout, RefusesWhatIsNoImage) {
  EXPECT_THAT(error_text<DataError>([] { layout_of(torch::zeros({5}), "Test"); }),
              HasSubstr("Test: expected an image, bytes [H, W] or [H, W, C] or floats [C, H, W], "
                        "got Float [5]"));
  EXPECT_THROW(layout_of(torch::zeros({0, 5}), "Test"), DataError);
  EXPECT_THAT(error_text<DataError>([] {
                layout_of(torch::zeros({3, 32, 32}, torch::kUInt8), "Test");
              }),
              HasSubstr("got Byte [3, 32, 32], which looks like [C, H, W]; permute the data"));
}

TEST(Layout, RefusesFloatsWithChannelsLast) {
  EXPECT_THAT(error_text<DataError>([] {
                layout_of(torch::zeros({32, 40, 3}), "Test");
              }),
              HasSubstr("Test: expected floats with channels first, [C, H, W], got Float "
                        "[32, 40, 3], which looks like [H, W, C]; put a ToTensor before it"));
  // Small images of many channels, images that are three pixels wide, and signals.
  EXPECT_EQ(layout_of(torch::zeros({8, 16, 4}), "Test").channels, 8);
  EXPECT_EQ(layout_of(torch::zeros({64, 1000, 1}), "Test").channels, 64);
  EXPECT_EQ(layout_of(torch::zeros({3, 32, 3}), "Test").channels, 3);
}

TEST(FilledImage, OfBytesHasBytes) {
  const torch::Tensor bytes = torch::zeros({4, 4, 3}, torch::kUInt8);
  EXPECT_EQ(filled_image({2, 2, 3}, bytes, {0, 128, 255}, "Test")[1][1][2].item<int>(), 255);
  for (const double wrong : {-1.0, 256.0}) {
    EXPECT_THAT(error_text<DataError>([&] {
                  filled_image({2, 2, 3}, bytes, {wrong}, "Test: fill");
                }),
                HasSubstr("Test: fill: expected values from 0 to 255, because the image is bytes"));
  }
  EXPECT_EQ(filled_image({1, 2, 2}, torch::zeros({1, 4, 4}), {-1}, "Test").sum().item<int>(), -4);
}

TEST(Layout, OfABatchIsThatOfEachImage) {
  const ImageLayout floats = layout_of_batch(torch::zeros({2, 3, 5, 7}), "Test");
  EXPECT_EQ(floats.size, (ImageSize{.height = 5, .width = 7}));
  EXPECT_TRUE(floats.channels_first);
  EXPECT_EQ(layout_of_batch(torch::zeros({2, 5, 7, 3}, torch::kUInt8), "Test").channels, 3);
  EXPECT_EQ(layout_of_batch(torch::zeros({2, 5, 7}), "Test").size, floats.size);
  EXPECT_THAT(error_text<DataError>([] {
                layout_of_batch(torch::zeros({2, 32, 32, 3}), "Test");
              }),
              HasSubstr("got Float [2, 32, 32, 3], which looks like [H, W, C]"));
  EXPECT_THAT(error_text<DataError>([] {
                layout_of_batch(torch::zeros({2, 5}), "Test");
              }),
              HasSubstr("Test: expected images, bytes [B, H, W]"));
}

// The meta device stands for a GPU.
TEST(FilledImage, IsOnTheDeviceOfItsImage) {
  const torch::Tensor image = torch::empty({3, 4, 4}, torch::kMeta);
  for (const auto& fill : {std::vector<double>{1}, std::vector<double>{1, 2, 3}}) {
    EXPECT_TRUE(filled_image({3, 2, 2}, image, fill, "Test").is_meta());
  }
}

TEST(CheckOnCpu, NamesTheDevice) {
  EXPECT_EQ(error_text<DataError>([] {
              check_on_cpu(torch::empty({3, 4, 4}, torch::kMeta), "Test");
            }),
            "Test: expected an image in the memory of the CPU, got Float [3, 4, 4] on meta; move "
            "it with .cpu()");
  check_on_cpu(torch::zeros({3, 4, 4}), "Test");
}

}  // namespace
}  // namespace lockstep::data

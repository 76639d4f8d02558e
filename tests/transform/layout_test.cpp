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

}  // namespace
}  // namespace lockstep::data

#include "lockstep/image/encode.h"

#include <gmock/gmock.h>

#include "tests/data/error_text.h"
#include "tests/image/encoders.h"

namespace lockstep::data {
namespace {

TEST(EncodeJpeg, CanBeDecoded) {
  const torch::Tensor image = testing::gradient(33, 50);
  const std::string file = encode_jpeg(image, {.quality = 95});
  EXPECT_LT(testing::mean_difference(decode(testing::bytes_of(file)), image), 2);
  EXPECT_LT(encode_jpeg(image, {.quality = 20}).size(), file.size());
  const torch::Tensor grey = image.select(2, 0);
  const torch::Tensor decoded =
      decode(testing::bytes_of(encode_jpeg(grey)), {.channels = Channels::kStored});
  EXPECT_LT(testing::mean_difference(decoded.squeeze(2), grey), 3);
  EXPECT_EQ(encode_jpeg(grey.unsqueeze(2)), encode_jpeg(grey));
}

TEST(EncodeJpeg, RefusesOtherTensors) {
  EXPECT_THAT(error_text<DataError>([] {
                encode_jpeg(torch::rand({3, 8, 8}));
              }),
              ::testing::HasSubstr("Float [3, 8, 8]"));
  EXPECT_THAT(error_text<ConfigError>([] { encode_jpeg(testing::gradient(8, 8), {.quality = 0}); }),
              ::testing::HasSubstr("quality: expected 1 to 100, got 0"));
  EXPECT_THAT(error_text<DataError>([] {
                encode_jpeg(torch::zeros({1, 70000, 3}, torch::kUInt8));
              }),
              ::testing::HasSubstr("encode_jpeg: "));
}

}  // namespace
}  // namespace lockstep::data

#include "lockstep/image/exif.h"

#include <gtest/gtest.h>

#include "tests/image/encoders.h"

namespace lockstep::data {
namespace {

TEST(Exif, OrientationInBothByteOrders) {
  for (int orientation = 1; orientation <= 8; ++orientation) {
    for (const bool little : {true, false}) {
      const std::string data = testing::exif(orientation, little);
      EXPECT_EQ(exif_orientation(testing::bytes_of(data)), orientation);
      EXPECT_EQ(exif_orientation(testing::bytes_of(std::string("Exif\0\0", 6) + data)),
                orientation);
    }
  }
}

TEST(Exif, DamagedDataMeanUpright) {
  const std::string data = testing::exif(6);
  for (std::size_t size = 0; size < data.size() - 4; ++size) {  // the last 4 bytes are not needed
    EXPECT_EQ(exif_orientation(testing::bytes_of(data.substr(0, size))), 1) << size;
  }
  EXPECT_EQ(exif_orientation(testing::bytes_of(testing::exif(9))), 1);
  EXPECT_EQ(exif_orientation(testing::bytes_of(testing::exif(0))), 1);
  for (std::size_t at = 0; at < 12; ++at) {
    std::string damaged = data;
    damaged[at] = '\xff';
    const int orientation = exif_orientation(testing::bytes_of(damaged));
    EXPECT_TRUE(orientation == 1 || orientation == 6) << at;
  }
}

}  // namespace
}  // namespace lockstep::data

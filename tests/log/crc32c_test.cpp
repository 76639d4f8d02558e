#include "lockstep/log/crc32c.h"

#include <string>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

// The check value of the CRC catalogue, and the vectors of RFC 3720, B.4.
TEST(Crc32c, KnownVectors) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  std::string ascending;
  for (int i = 0; i < 32; ++i) ascending += static_cast<char>(i);
  EXPECT_EQ(crc32c(ascending), 0x46dd794eu);
  EXPECT_EQ(crc32c(""), 0u);
}

TEST(Crc32c, MaskRotatesAndAdds) {
  // 0xe3069283 rotated right by 15 is 0x2507c60d.
  EXPECT_EQ(masked_crc32c("123456789"), 0x2507c60du + 0xa282ead8u);
}

}  // namespace
}  // namespace lockstep

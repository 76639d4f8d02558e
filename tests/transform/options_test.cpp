#include "lockstep/transform/options.h"

#include <limits>

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "tests/data/error_text.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(TransformOptions, ASizeIsOneOrTwoNumbers) {
  EXPECT_EQ(read_size("Test", {5}), (ImageSize{.height = 5, .width = 5}));
  EXPECT_EQ(read_size("Test", {5, 7}), (ImageSize{.height = 5, .width = 7}));
  EXPECT_THAT(
      error_text<ConfigError>([] {
        read_size("Test", {5, 0});
      }),
      HasSubstr("Test: size: expected {height, width} or {length}, all positive and at most "
                "2147483647, got [5, 0]"));
  EXPECT_THROW(read_size("Test", {std::int64_t{1} << 40}), ConfigError);
  EXPECT_THROW(read_size("Test", {}), ConfigError);
  EXPECT_THROW(read_size("Test", {1, 2, 3}), ConfigError);
}

TEST(TransformOptions, ARangeHasTwoEnds) {
  EXPECT_EQ(read_range("Test", "scale", {1, 2}).high, 2);
  EXPECT_THAT(error_text<ConfigError>([] {
                read_range("Test", "scale", {2, 1});
              }),
              HasSubstr("Test: scale: expected {lowest, highest}, got"));
  EXPECT_THROW(read_range("Test", "scale", {1}), ConfigError);
  EXPECT_THROW(read_range("Test", "scale", {1, std::numeric_limits<double>::infinity()}),
               ConfigError);
}

TEST(TransformOptions, ARangeAroundMayBeADistance) {
  const Range range = read_range_around("Test", "factor", {0.25}, 1);
  EXPECT_EQ(range.low, 0.75);
  EXPECT_EQ(range.high, 1.25);
  EXPECT_EQ(read_range_around("Test", "factor", {3, 4}, 1).low, 3);
  EXPECT_THROW(read_range_around("Test", "factor", {-1}, 1), ConfigError);
}

TEST(TransformOptions, OneValueIsThatOfAllChannels) {
  EXPECT_THAT(per_channel("Test", {4}, 3), ElementsAre(4, 4, 4));
  EXPECT_THAT(per_channel("Test", {1, 2}, 2), ElementsAre(1, 2));
  EXPECT_THAT(error_text<DataError>([] {
                per_channel("Test", {1, 2}, 3);
              }),
              HasSubstr("one for each of 3, got"));
}

TEST(TransformOptions, AProbabilityIsAtMostOne) {
  check_probability("Test", 1);
  EXPECT_THROW(check_probability("Test", 1.1), ConfigError);
}

}  // namespace
}  // namespace lockstep::data

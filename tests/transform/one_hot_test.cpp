#include "lockstep/transform/one_hot.h"

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "tests/data/error_text.h"

namespace lockstep::data {
namespace {

using ::testing::HasSubstr;

TEST(OneHot, HasAOneAtEachClass) {
  const torch::Tensor rows = OneHot({.classes = 3}).apply(torch::tensor({2, 0}, torch::kUInt8));
  EXPECT_TRUE(torch::equal(rows, torch::tensor({{0.0F, 0.0F, 1.0F}, {1.0F, 0.0F, 0.0F}})));
  EXPECT_EQ(one_hot_rows(torch::tensor(1), 3).sizes(), torch::IntArrayRef{3});
}

TEST(OneHot, RefusesOtherClasses) {
  EXPECT_THAT(error_text<DataError>([] {
                one_hot_rows(torch::tensor({0, 3}), 3);
              }),
              HasSubstr("expected classes 0 to 2, got 3"));
  EXPECT_THROW(one_hot_rows(torch::tensor({-1}), 3), DataError);
  EXPECT_THROW(one_hot_rows(torch::ones({2}), 3), DataError);
  EXPECT_THROW(OneHot({}), ConfigError);
}

}  // namespace
}  // namespace lockstep::data

#include "lockstep/science/csv.h"

#include <gtest/gtest.h>

namespace lockstep::science {
namespace {

TEST(Csv, ShorterColumnsEndEarlier) {
  EXPECT_EQ(to_csv({{"a", {1, 2.5}}, {"b,c", {3}}}), "a,\"b,c\"\n1,3\n2.5,\n");
  EXPECT_EQ(to_csv({}), "\n");
}

}  // namespace
}  // namespace lockstep::science

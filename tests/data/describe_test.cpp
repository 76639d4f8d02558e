#include "lockstep/data/describe.h"

#include <gtest/gtest.h>

namespace lockstep::data {
namespace {

TEST(Describe, GivesTypeAndShape) {
  EXPECT_EQ(describe(torch::zeros({32, 1, 28})), "Float [32, 1, 28]");
  EXPECT_EQ(describe(torch::tensor(std::int64_t{3})), "Long []");
}

}  // namespace
}  // namespace lockstep::data

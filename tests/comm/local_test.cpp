#include "lockstep/comm/local.h"

#include <gtest/gtest.h>

#include "tests/comm/collectives.h"

namespace lockstep::comm {
namespace {

TEST(Local, DoesEverythingAlone) {
  Local comm;
  check_collectives(comm);
  EXPECT_EQ(comm.name(), "local");
  EXPECT_EQ(comm.size(), 1);
  EXPECT_TRUE(comm.is_primary());
}

}  // namespace
}  // namespace lockstep::comm

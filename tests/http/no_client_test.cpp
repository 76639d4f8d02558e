#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/http/client.h"

namespace lockstep::http {
namespace {

TEST(NoClient, SaysHowToGetOne) {
  EXPECT_THAT([] { Client(); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr("LOCKSTEP_DOWNLOAD=ON")));
}

}  // namespace
}  // namespace lockstep::http

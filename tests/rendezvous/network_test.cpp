#include "lockstep/rendezvous/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "tests/support/rank_process.h"

namespace lockstep::rendezvous {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Network, LoopbackIsWhatIsWrittenSo) {
  for (const char* address : {"localhost", "127.0.0.1", "127.0.1.1", "::1"}) {
    EXPECT_TRUE(is_loopback(address)) << address;
  }
  // A host may resolve its own name to 127.0.1.1, while other hosts resolve it to another address.
  for (const char* address : {"10.0.0.1", "node1", "128.0.0.1", "fe80::1", "::", "0.0.0.0", ""}) {
    EXPECT_FALSE(is_loopback(address)) << address;
  }
}

TEST(Network, LoopbackStaysOnThisHost) {
  const NetworkChoice choice =
      choose_network({.address = "127.0.0.1"}, {{kInterfaceVariable, "lo"}});
  EXPECT_EQ(choice.listen, "127.0.0.1");
  EXPECT_FALSE(choice.beyond_host);
}

TEST(Network, AHostListensOnAllInterfacesWhateverItIsCalled) {
  for (const char* address : {"node1", "10.0.0.1", "203.0.113.7"}) {
    const NetworkChoice choice = choose_network({.address = address}, {});
    EXPECT_EQ(choice.listen, kAllInterfaces);
    EXPECT_EQ(choice.own, kLoopback);
    EXPECT_TRUE(choice.beyond_host);
    EXPECT_FALSE(choice.chosen);
  }
}

TEST(Network, AnInterfaceCanBeChosenByNameAndByAddress) {
  const NetworkChoice by_variable =
      choose_network({.address = "node1"}, {{kInterfaceVariable, "lo"}});
  EXPECT_EQ(by_variable.listen, "127.0.0.1");
  EXPECT_EQ(by_variable.chosen, "127.0.0.1");
  EXPECT_TRUE(by_variable.beyond_host);
  const NetworkChoice by_option =
      choose_network({.address = "node1", .interface = "10.0.0.9"}, {{kInterfaceVariable, "lo"}});
  EXPECT_EQ(by_option.listen, "10.0.0.9");
}

TEST(Network, AnUnknownInterfaceIsNamedWithThoseThereAre) {
  EXPECT_THAT(message_of<ConfigError>([] { address_of_interface("eth77"); }),
              AllOf(HasSubstr("'eth77'"), HasSubstr("lo")));
}

}  // namespace
}  // namespace lockstep::rendezvous

#include "lockstep/rendezvous/socket.h"

#include <set>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include "lockstep/base/error.h"
#include "tests/support/rank_process.h"

namespace lockstep::rendezvous {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A port that was free a moment ago.
int unused_port() {
  return local_port(listen_on({}));
}

TEST(Socket, EndpointsAreWrittenAsUsual) {
  EXPECT_EQ(to_string(Endpoint{.address = "node1", .port = 80}), "node1:80");
  EXPECT_EQ(to_string(Endpoint{.address = "::1", .port = 80}), "[::1]:80");
}

TEST(Socket, ConnectsToAListener) {
  for (const char* address : {"127.0.0.1", "localhost"}) {
    const FileDescriptor listener = listen_on({.address = address});
    const FileDescriptor client =
        connect_to({.address = address, .port = local_port(listener)}, deadline_in(kLimit));
    ASSERT_TRUE(wait_for(listener, POLLIN, deadline_in(kLimit)));
    const FileDescriptor server = accept_from(listener);
    ASSERT_TRUE(server);
    for (const auto* socket : {&listener, &client, &server}) {
      EXPECT_TRUE(::fcntl(socket->get(), F_GETFD) & FD_CLOEXEC);
      EXPECT_TRUE(::fcntl(socket->get(), F_GETFL) & O_NONBLOCK);
    }
    EXPECT_FALSE(accept_from(listener));
  }
}

TEST(Socket, ConnectsOverIpv6) {
  FileDescriptor listener;
  try {
    listener = listen_on({.address = "::1"});
  } catch (const CommError&) {
    GTEST_SKIP() << "this machine has no IPv6";
  }
  const int port = local_port(listener);
  EXPECT_TRUE(connect_to({.address = "::1", .port = port}, deadline_in(kLimit)));
  EXPECT_THROW(connect_to({.port = port}, deadline_in(kLimit)), CommError);
}

TEST(Socket, ListensOnItsAddressAlone) {
  const FileDescriptor listener = listen_on({.address = "127.0.0.1"});
  const int port = local_port(listener);
  EXPECT_TRUE(connect_to({.address = "127.0.0.1", .port = port}, deadline_in(kLimit)));
  EXPECT_THAT(message_of<CommError>(
                  [&] { connect_to({.address = "127.0.0.2", .port = port}, deadline_in(kLimit)); }),
              HasSubstr("Connection refused"));
}

TEST(Socket, FreePortsAreNeverGivenTwice) {
  std::vector<FileDescriptor> listeners;
  std::set<int> ports;
  for (int i = 0; i < 200; ++i) {
    listeners.push_back(listen_on({}));
    ports.insert(local_port(listeners.back()));
  }
  EXPECT_EQ(ports.size(), 200u);
}

TEST(Socket, ListensOnAllInterfaces) {
  const FileDescriptor listener = listen_on({.address = "*"});
  for (const char* address : {"127.0.0.1", "127.0.0.2"}) {
    const FileDescriptor client =
        connect_to({.address = address, .port = local_port(listener)}, deadline_in(kLimit));
    ASSERT_TRUE(wait_for(listener, POLLIN, deadline_in(kLimit)));
    const FileDescriptor server = accept_from(listener);
    EXPECT_EQ(local_address(server), address);
    EXPECT_EQ(peer_address(client), address);
    EXPECT_EQ(local_address(client), peer_address(server));
  }
}

TEST(Socket, AReservedPortIsOnlyForProgramsThatKnowIt) {
  for (const char* address : {"127.0.0.1", "*"}) {
    const FileDescriptor reserved = reserve_port({.address = address});
    const int port = local_port(reserved);
    for (int i = 0; i < 200; ++i) EXPECT_NE(unused_port(), port);
    const FileDescriptor listener = listen_on({.address = address, .port = port});
    EXPECT_TRUE(connect_to({.port = port}, deadline_in(kLimit)));
  }
}

TEST(Socket, ErrorsNameTheAddressAndTheCause) {
  const FileDescriptor listener = listen_on({});
  const int taken = local_port(listener);
  EXPECT_THAT(message_of<CommError>([&] { listen_on({.port = taken}); }),
              AllOf(HasSubstr("127.0.0.1:" + std::to_string(taken)), HasSubstr("in use")));
  EXPECT_THAT(message_of<CommError>([&] { listen_on({.address = ""}); }), HasSubstr("got ''"));
  EXPECT_THAT(message_of<CommError>([&] { listen_on({.port = 70000}); }), HasSubstr("70000"));
  const int unused = unused_port();
  EXPECT_THAT(
      message_of<CommError>([&] { connect_to({.port = unused}, deadline_in(kLimit)); }),
      AllOf(HasSubstr("127.0.0.1:" + std::to_string(unused)), HasSubstr("Connection refused")));
  EXPECT_THAT(message_of<CommError>(
                  [&] { connect_to({.address = "no such host", .port = 1}, deadline_in(kLimit)); }),
              HasSubstr("cannot resolve 'no such host'"));
}

// The kernel tries one ephemeral port after another for our end. With so many attempts, one of them
// would get the port that we connect to.
TEST(Socket, NeverConnectsToItself) {
  const int port = unused_port() & ~1;
  for (int i = 0; i < 20000; ++i) {
    ASSERT_THROW(connect_to({.port = port}, deadline_in(kLimit)), CommError);
  }
}

TEST(Socket, DeadlinesHaveLimits) {
  EXPECT_GT(deadline_in(std::chrono::milliseconds::max()), Clock::now() + 24h);
  EXPECT_LE(deadline_in(-1h), Clock::now() + 1min);
  EXPECT_EQ(milliseconds_until(Clock::now() - 1h), 0);
  EXPECT_GT(milliseconds_until(Clock::now() + 24h), 1000);
  EXPECT_FALSE(wait_for(listen_on({}), POLLIN, deadline_in(1ms)));
}

}  // namespace
}  // namespace lockstep::rendezvous

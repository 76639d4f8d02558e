#include "lockstep/rendezvous/rendezvous_join.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include "lockstep/base/error.h"
#include "lockstep/rendezvous/handshake.h"
#include "lockstep/rendezvous/rendezvous_server.h"
#include "lockstep/rendezvous/socket.h"
#include "tests/support/rank_process.h"
#include "tests/support/slowdown.h"

namespace lockstep::rendezvous {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const ServerOptions kServer{.token = "secret", .world_size = 4};

RendezvousOptions rank_at(int port) {
  return {.port = port, .token = "secret", .rank = 1, .world_size = 4, .timeout = kLimit};
}

std::string complaint(const RendezvousOptions& options) {
  return message_of<Error>([&] { join_rendezvous(options); });
}

TEST(RendezvousJoin, ARankThatDoesNotFitIsTurnedAwayWithTheReasonAtOnce) {
  const RendezvousServer server(kServer);
  const FrameChannel member = join_rendezvous(rank_at(server.port()));
  const std::string where = "rendezvous at 127.0.0.1:" + std::to_string(server.port());
  const auto start = Clock::now();

  RendezvousOptions options = rank_at(server.port());
  EXPECT_THAT(complaint(options),
              AllOf(HasSubstr(where),
                    HasSubstr("turned away: rank 1 has already joined from 127.0.0.1, and this "
                              "process comes from 127.0.0.1")));
  options.rank = 2;
  options.world_size = 5;
  EXPECT_THAT(complaint(options),
              HasSubstr("rank 2 of 5 was turned away: expected world size 4, got 5"));
  options.token = "Secret";
  EXPECT_THAT(complaint(options),
              HasSubstr("turned away: the server there does not know this run's token"));
  options.token = "secret";
  options.run = "another";
  EXPECT_THAT(complaint(options), HasSubstr("the token or the run's name differs"));
  EXPECT_LT(Clock::now() - start, kLimit / 2);

  options = rank_at(server.port());
  options.rank = 2;
  EXPECT_NO_THROW(join_rendezvous(options)) << "the run is not disturbed";
}

TEST(RendezvousJoin, OptionsAreChecked) {
  EXPECT_THAT(complaint(rank_at(0)), HasSubstr("expected a port from 1 to 65535, got 0"));
  RendezvousOptions options = rank_at(1);
  options.rank = 4;
  EXPECT_THAT(complaint(options), HasSubstr("got 4 of 4"));
}

TEST(RendezvousJoin, WaitsForAServerThatStartsLater) {
  const int port = RendezvousServer(kServer).port();
  std::string failed;
  std::thread rank([&] { failed = complaint(rank_at(port)); });
  ServerOptions options = kServer;
  options.port = port;
  const RendezvousServer server(options);
  rank.join();
  EXPECT_EQ(failed, "");
}

TEST(RendezvousJoin, WithoutAServerTheErrorNamesTheAddressTheTimeAndTheCause) {
  RendezvousOptions options = rank_at(RendezvousServer(kServer).port());
  options.timeout = 200ms;
  const auto start = Clock::now();
  EXPECT_EQ(complaint(options),
            fmt::format("rank 0 did not come: rank 1 of 4 found no rendezvous at 127.0.0.1:{0} in "
                        "0.2 s: 127.0.0.1:{0}: cannot connect: Connection refused",
                        options.port));
  EXPECT_GE(Clock::now() - start, 200ms);
  EXPECT_LT(Clock::now() - start, scaled(5s));
  options.address = "no such host";
  EXPECT_THAT(complaint(options), HasSubstr("cannot resolve 'no such host'"));
}

// Waiting would not help, so the error is thrown at once.
TEST(RendezvousJoin, AnotherVersionOfTheProtocolEndsTheAttempts) {
  const FileDescriptor listener = listen_on({.address = "127.0.0.1", .port = 0});
  std::thread newer([&] {
    ASSERT_TRUE(wait_for(listener, POLLIN, deadline_in(kLimit)));
    const FileDescriptor client = accept_from(listener);
    std::string frame = encode_frame(FrameKind::kChallenge, "");
    frame[4] = 9;
    EXPECT_EQ(::send(client.get(), frame.data(), frame.size(), 0),
              static_cast<ssize_t>(frame.size()));
    wait_for(client, POLLRDHUP, deadline_in(kLimit));
  });
  const auto start = Clock::now();
  EXPECT_THAT(complaint(rank_at(local_port(listener))),
              AllOf(HasSubstr("version 9"), HasSubstr("the same version of Lockstep")));
  EXPECT_LT(Clock::now() - start, kLimit / 2);
  newer.join();
}

TEST(RendezvousJoin, AnotherProgramsPortIsNoServer) {
  const FileDescriptor listener = listen_on({});
  RendezvousOptions options = rank_at(local_port(listener));
  options.timeout = 100ms;
  EXPECT_THAT(complaint(options), AllOf(HasSubstr("rank 0: the rendezvous at"),
                                        HasSubstr("did not answer rank 1 in 0.1 s")));

  options.timeout = 300ms;
  std::thread web([&] {
    const auto deadline = deadline_in(400ms);
    while (wait_for(listener, POLLIN, deadline)) {
      const FileDescriptor socket = accept_from(listener);
      ::send(socket.get(), "HTTP/1.1 400 Bad Request", 24, MSG_NOSIGNAL);
      wait_for(socket, POLLIN, deadline);
    }
  });
  EXPECT_THAT(complaint(options), HasSubstr("not a message of Lockstep"));
  web.join();
}

// A foreign program listens on the port and tries to learn the token.
TEST(RendezvousJoin, AFakeServerIsToldNothingAndIsNotBelieved) {
  const FileDescriptor listener = listen_on({});
  std::string heard;
  std::thread fake([&] {
    if (!wait_for(listener, POLLIN, deadline_in(kLimit))) return;
    FrameChannel channel(accept_from(listener));
    const auto receive = [&] {
      std::optional<Frame> frame;
      while (!(frame = channel.next())) {
        if (!wait_for(channel.socket(), POLLIN, deadline_in(kLimit)) || !channel.receive()) break;
      }
      return frame;
    };
    if (const auto hello = receive()) heard += hello->payload;
    channel.send(
        FrameKind::kChallenge,
        FieldWriter().text(std::string(kNonceBytes, 's')).text(std::string(32, 'p')).payload());
    if (const auto more = receive()) heard += more->payload;
  });
  const RendezvousOptions options = rank_at(local_port(listener));
  const auto start = Clock::now();
  EXPECT_THAT(complaint(options), HasSubstr("the server there does not know this run's token"));
  EXPECT_LT(Clock::now() - start, kLimit / 2);
  fake.join();
  EXPECT_EQ(heard.size(), 8 + kNonceBytes) << "a random number and its length, nothing else";
  EXPECT_EQ(heard.find("secret"), std::string::npos);
}

// Before a server has proved that it knows the token, its messages may come from any program.
TEST(RendezvousJoin, AnUnprovenRefusalIsNeitherBelievedNorShown) {
  const FileDescriptor listener = listen_on({});
  std::thread fake([&] {
    const auto deadline = deadline_in(400ms);
    while (wait_for(listener, POLLIN, deadline)) {
      FrameChannel channel(accept_from(listener));
      channel.send(FrameKind::kTurnedAway, FieldWriter().text("go home").payload());
      wait_for(channel.socket(), POLLIN, deadline);
    }
  });
  RendezvousOptions options = rank_at(local_port(listener));
  options.timeout = 300ms;
  EXPECT_THAT(complaint(options),
              AllOf(HasSubstr("it is no rendezvous of Lockstep"), Not(HasSubstr("go home"))));
  fake.join();
}

TEST(RendezvousJoin, ARankThatHasNotComeHasMoreTimeThanOneThatDoesNotAnswer) {
  RendezvousOptions options = rank_at(RendezvousServer(kServer).port());
  options.timeout = 50ms;
  options.join_timeout = 400ms;
  const auto start = Clock::now();
  EXPECT_THAT(complaint(options), HasSubstr("rank 0 did not come"));
  EXPECT_GE(Clock::now() - start, 400ms);
}

}  // namespace
}  // namespace lockstep::rendezvous

#include "lockstep/launch/rendezvous_join.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include "lockstep/base/error.h"
#include "lockstep/launch/rendezvous_server.h"
#include "lockstep/launch/socket.h"
#include "tests/launch/rank_process.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

const ServerOptions kServer{.token = "secret", .world_size = 4};

RendezvousOptions rank_at(int port) {
  return {.port = port, .token = "secret", .rank = 1, .world_size = 4, .timeout = kLimit};
}

std::string complaint(const RendezvousOptions& options) {
  return message_of<Error>([&] { join_rendezvous(options); });
}

TEST(RendezvousJoin, WhoDoesNotFitIsTurnedAwayWithTheReasonAtOnce) {
  const RendezvousServer server(kServer);
  const FrameChannel member = join_rendezvous(rank_at(server.port()));
  const std::string where = "rendezvous at 127.0.0.1:" + std::to_string(server.port());
  const auto start = Clock::now();

  RendezvousOptions options = rank_at(server.port());
  EXPECT_THAT(complaint(options),
              AllOf(HasSubstr(where), HasSubstr("turned away: rank 1 has already joined")));
  options.rank = 2;
  options.world_size = 5;
  EXPECT_THAT(complaint(options),
              HasSubstr("rank 2 of 5 was turned away: expected world size 4, got 5"));
  options.token = "Secret";
  EXPECT_THAT(complaint(options), HasSubstr("turned away: wrong token"));
  EXPECT_LT(Clock::now() - start, kLimit / 2);

  options = rank_at(server.port());
  options.rank = 2;
  EXPECT_NO_THROW(join_rendezvous(options)) << "the run goes on";
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
            fmt::format("rendezvous at 127.0.0.1:{0}: rank 1 of 4 found no server in 0.2 s: "
                        "127.0.0.1:{0}: cannot connect: Connection refused",
                        options.port));
  EXPECT_GE(Clock::now() - start, 200ms);
  EXPECT_LT(Clock::now() - start, 5s);
  options.address = "no such host";
  EXPECT_THAT(complaint(options), HasSubstr("cannot resolve 'no such host'"));
}

TEST(RendezvousJoin, SomebodyElsesPortIsNoServer) {
  const FileDescriptor listener = listen_on({});
  RendezvousOptions options = rank_at(local_port(listener));
  options.timeout = 100ms;
  EXPECT_THAT(complaint(options), HasSubstr("connected, but nobody answers"));

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

}  // namespace
}  // namespace lockstep::launch

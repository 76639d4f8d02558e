#include "lockstep/rendezvous/rendezvous_server.h"

#include <atomic>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include "lockstep/base/error.h"
#include "lockstep/rendezvous/frame_channel.h"
#include "lockstep/rendezvous/handshake.h"
#include "lockstep/rendezvous/rendezvous.h"
#include "lockstep/rendezvous/socket.h"
#include "tests/support/rank_process.h"
#include "tests/support/slowdown.h"

namespace lockstep::rendezvous {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

ServerOptions for_ranks(int world_size) {
  return {.token = "secret", .world_size = world_size};
}

RendezvousOptions rank_of(const RendezvousServer& server, int rank, int world_size) {
  return {.port = server.port(),
          .token = "secret",
          .rank = rank,
          .world_size = world_size,
          .timeout = kLimit};
}

FileDescriptor connect(const RendezvousServer& server) {
  return connect_to({.port = server.port()}, deadline_in(kLimit));
}

std::optional<Frame> receive(FrameChannel& channel) {
  const auto deadline = deadline_in(kLimit);
  while (true) {
    if (auto frame = channel.next()) return frame;
    if (!wait_for(channel.socket(), POLLIN, deadline) || !channel.receive()) return std::nullopt;
  }
}

// Makes the handshake of a rank of 2, without a thread that continues to read.
void shake_hands(FrameChannel& channel, int rank, const std::string& token = "secret") {
  const Handshake handshake(token, "");
  Nonces nonces{.client = random_bytes(kNonceBytes)};
  channel.send(FrameKind::kHello, FieldWriter().text(nonces.client).payload());
  const auto challenge = receive(channel);
  ASSERT_TRUE(challenge && challenge->kind == FrameKind::kChallenge);
  nonces.server = FieldReader(challenge->payload).text();
  const std::string claim = FieldWriter().integer(rank).integer(2).text("process").payload();
  channel.send(FrameKind::kProof,
               FieldWriter().text(claim).text(handshake.client_proof(nonces, claim)).payload());
}

// Reads to the end of the connection.
bool is_closed_by_peer(const FileDescriptor& socket, std::chrono::milliseconds limit = kLimit) {
  const auto deadline = deadline_in(limit);
  char bytes[4096];
  while (wait_for(socket, POLLIN, deadline)) {
    if (::recv(socket.get(), bytes, sizeof bytes, 0) <= 0) return true;
  }
  return false;
}

TEST(RendezvousServer, OptionsAreChecked) {
  EXPECT_THAT(message_of<ConfigError>([] { RendezvousServer server({.world_size = 1}); }),
              HasSubstr("token"));
  EXPECT_THAT(
      message_of<ConfigError>([] { RendezvousServer server({.token = "x", .world_size = 0}); }),
      HasSubstr("got 0"));
}

TEST(RendezvousServer, ManyHaveManyPortsAndATakenOneIsNamed) {
  std::vector<std::unique_ptr<RendezvousServer>> servers;
  std::set<int> ports;
  for (int i = 0; i < 20; ++i) {
    servers.push_back(std::make_unique<RendezvousServer>(for_ranks(1)));
    ports.insert(servers.back()->port());
  }
  EXPECT_EQ(ports.size(), servers.size());
  ServerOptions options = for_ranks(1);
  options.port = servers[0]->port();
  EXPECT_THAT(message_of<CommError>([&] { RendezvousServer server(options); }),
              HasSubstr(std::to_string(options.port)));
  // The server's port is free again at once, even if a connection is still closing.
  { const Rendezvous client(rank_of(*servers[0], 0, 1)); }
  servers[0].reset();
  EXPECT_EQ(RendezvousServer(options).port(), options.port);
}

TEST(RendezvousServer, IsOnLoopbackAlone) {
  const RendezvousServer server(for_ranks(1));
  EXPECT_TRUE(connect(server));
  EXPECT_THROW(connect_to({.address = "127.0.0.2", .port = server.port()}, deadline_in(kLimit)),
               CommError);
  // "sl local_address rem_address st": 0100007F is 127.0.0.1, 0A is listening.
  const std::string table = read_file("/proc/net/tcp");
  EXPECT_THAT(table, HasSubstr(fmt::format(" 0100007F:{:04X} 00000000:0000 0A", server.port())));
  EXPECT_EQ(table.find(fmt::format(" 00000000:{:04X} ", server.port())), std::string::npos);
}

TEST(RendezvousServer, GarbageEndsItsConnectionAndNothingElse) {
  const RendezvousServer server(for_ranks(1));
  Rendezvous client(rank_of(server, 0, 1));
  std::string huge = encode_frame(FrameKind::kHello, "");
  huge[11] = '\x7f';
  const std::string cut_hello = encode_frame(FrameKind::kHello, "\x10");
  const std::string stranger = encode_frame(FrameKind::kSet, FieldWriter().integer(1).payload());
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), std::string(100000, '\0'),
        std::string("\x16\x03\x01\x02", 4), huge, cut_hello, stranger}) {
    const FileDescriptor socket = connect(server);
    ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    EXPECT_TRUE(is_closed_by_peer(socket));
  }
  client.set("k", "v");
  EXPECT_EQ(client.get("k"), "v");
  EXPECT_FALSE(client.failure());
}

TEST(RendezvousServer, SilentConnectionsAreDroppedAndHoldUpNoRank) {
  ServerOptions options = for_ranks(1);
  options.patience = 300ms;
  const RendezvousServer server(options);
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(connect(server));
  const std::string half = encode_frame(FrameKind::kHello, "more to come").substr(0, 14);
  ::send(silent[0].get(), half.data(), half.size(), MSG_NOSIGNAL);

  Rendezvous client(rank_of(server, 0, 1));
  client.set("k", "v");
  EXPECT_EQ(client.get("k"), "v");
  for (const FileDescriptor& socket : silent) EXPECT_TRUE(is_closed_by_peer(socket));
  EXPECT_EQ(client.get("k"), "v");
  EXPECT_FALSE(client.failure());
}

TEST(RendezvousServer, AFloodOfConnectionsDoesNotKeepARankOut) {
  const RendezvousServer server(for_ranks(1));
  std::vector<FileDescriptor> flood;
  for (int i = 0; i < 300; ++i) flood.push_back(connect(server));
  Rendezvous client(rank_of(server, 0, 1));
  client.set("k", "v");
  EXPECT_EQ(client.get("k"), "v");
  // The server keeps at most 64 strangers, plus two for each rank. The oldest are closed first.
  for (int i = 0; i < 300 - 66; ++i) {
    EXPECT_TRUE(is_closed_by_peer(flood[static_cast<std::size_t>(i)])) << i;
  }
}

TEST(RendezvousServer, APeerThatDoesNotReadHoldsUpNoOther) {
  const RendezvousServer server(for_ranks(2));
  FrameChannel deaf(connect(server));
  shake_hands(deaf, 1);
  Rendezvous client(rank_of(server, 0, 2));
  ASSERT_TRUE(eventually([&] { return client.peers()[1].joined; }));
  client.set("large", std::string(16 << 20, 'x'));
  for (int i = 0; i < 3; ++i) {
    deaf.send(FrameKind::kGet, FieldWriter().integer(i).text("large").payload());
  }
  client.set("k", "v");
  EXPECT_EQ(client.get("k"), "v");
  EXPECT_FALSE(client.failure());
}

// The stranger knows the address, the port, the world size and the protocol.
TEST(RendezvousServer, AStrangerWithoutTheTokenLearnsNothingAndStallsNoRank) {
  const RendezvousServer server(for_ranks(2));
  Rendezvous client(rank_of(server, 0, 2));
  client.set("key", "a value of the run");
  FrameChannel stranger(connect(server));
  shake_hands(stranger, 1, "guess");
  const auto answer = receive(stranger);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->kind, FrameKind::kTurnedAway);
  EXPECT_EQ(FieldReader(answer->payload).text(), "wrong token");
  EXPECT_EQ(receive(stranger), std::nullopt) << "closed, and nothing else was sent";

  FrameChannel asking(connect(server));
  asking.send(FrameKind::kGet, FieldWriter().integer(1).text("key").payload());
  const auto refused = receive(asking);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->payload.find("a value of the run"), std::string::npos);

  EXPECT_FALSE(client.peers()[1].joined);
  Rendezvous member(rank_of(server, 1, 2));
  EXPECT_EQ(member.get("key"), "a value of the run");
  EXPECT_FALSE(client.failure());
}

TEST(RendezvousServer, TellsWhereOtherHostsCameTo) {
  const RendezvousServer server(for_ranks(1));
  const Rendezvous client(rank_of(server, 0, 1));
  EXPECT_EQ(client.local_address(), "127.0.0.1");
  EXPECT_EQ(server.reached_at(), "") << "no other host connects by loopback";
  EXPECT_TRUE(server.is_present(0));
  EXPECT_FALSE(server.is_present(1));
}

TEST(RendezvousServer, KeepsTheDoorAfterAMeeting) {
  RendezvousServer server(for_ranks(2));
  Rendezvous(rank_of(server, 0, 2)).leave();
  FrameChannel member(connect(server));
  shake_hands(member, 1);
  ASSERT_EQ(receive(member)->kind, FrameKind::kWelcome);
  member = FrameChannel(connect(server));
  std::atomic<bool> taken = true;
  server.keep_listening([&](int) { return taken.load(); });
  // Rank 0 joined from this process before. Rank 1 joined with the identity "process", which is not
  // this process's.
  RendezvousOptions same = rank_of(server, 0, 2);
  same.timeout = 300ms;
  EXPECT_THAT(message_of<CommError>([&] { Rendezvous rank(same); }),
              HasSubstr("an earlier rendezvous is not over"));
  RendezvousOptions other = rank_of(server, 1, 2);
  EXPECT_THAT(message_of<CommError>([&] { Rendezvous rank(other); }),
              HasSubstr("rank 1 has already joined from 127.0.0.1"));
  taken = false;
  other.timeout = 300ms;
  EXPECT_THAT(message_of<CommError>([&] { Rendezvous rank(other); }),
              HasSubstr("an earlier rendezvous is not over"));
  server.close();
  EXPECT_GT(server.port(), 0);
}

TEST(RendezvousServer, AMemberThatSendsGarbageHasFailed) {
  const RendezvousServer server(for_ranks(2));
  FrameChannel member(connect(server));
  shake_hands(member, 1);
  Rendezvous client(rank_of(server, 0, 2));
  ASSERT_TRUE(eventually([&] { return client.peers()[1].joined; }));
  ::send(member.socket().get(), "garbage", 7, MSG_NOSIGNAL);
  ASSERT_TRUE(eventually([&] { return client.failure().has_value(); }));
  EXPECT_EQ(client.failure()->rank, 1);
  EXPECT_THAT(client.failure()->reason, HasSubstr("not a message of Lockstep"));
}

TEST(RendezvousServer, WaitsForTheLastToLeave) {
  RendezvousServer server(for_ranks(2));
  EXPECT_TRUE(server.wait_until_empty(0ms));
  Rendezvous a(rank_of(server, 0, 2)), b(rank_of(server, 1, 2));
  ASSERT_FALSE(server.wait_until_empty(10ms));
  a.leave();
  EXPECT_FALSE(server.wait_until_empty(10ms));
  b.fail("why");
  EXPECT_TRUE(server.wait_until_empty(kLimit));
}

TEST(RendezvousServer, EndsAtOnceWithRanksAndStrangersConnected) {
  auto server = std::make_unique<RendezvousServer>(for_ranks(1));
  const FileDescriptor stranger = connect(*server);
  Rendezvous client(rank_of(*server, 0, 1));
  const auto start = Clock::now();
  server.reset();
  EXPECT_LT(Clock::now() - start, scaled(1s));
  EXPECT_TRUE(is_closed_by_peer(stranger));
}

}  // namespace
}  // namespace lockstep::rendezvous

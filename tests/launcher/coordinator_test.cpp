#include "lockstep/launcher/coordinator.h"

#include <cerrno>
#include <chrono>
#include <ctime>
#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include "lockstep/base/error.h"
#include "lockstep/launcher/node_messages.h"
#include "lockstep/rendezvous/frame_channel.h"
#include "lockstep/rendezvous/handshake.h"
#include "tests/support/io_faults.h"
#include "tests/support/slowdown.h"

namespace lockstep::launcher {
namespace {

using namespace std::chrono_literals;
using rendezvous::Clock;
using rendezvous::FieldReader;
using rendezvous::FieldWriter;
using rendezvous::Frame;
using rendezvous::FrameKind;
using testing::HasSubstr;

int free_port_for_test() {
  return rendezvous::local_port(rendezvous::listen_on({}));
}

CoordinatorOptions options_at(int port) {
  return {.listen = {.address = "127.0.0.1", .port = port},
          .token = "secret",
          .own = "a",
          .least = 1,
          .most = 2,
          .timeout = 10s,
          .silence = 1s,
          .last_call = 100ms};
}

// One end of a connection to the coordinator, without any thread.
class TestNode {
 public:
  explicit TestNode(int port)
      : channel_(rendezvous::connect_to({.port = port}, Clock::now() + 5s)) {}

  // The kind of the answer to the handshake.
  FrameKind shake_hands(const std::string& token) {
    const rendezvous::Handshake handshake(membership_token(token, {.least = 1, .most = 2}), "");
    rendezvous::Nonces nonces{.client = rendezvous::random_bytes(rendezvous::kNonceBytes)};
    channel_.send(FrameKind::kHello, FieldWriter().text(nonces.client).payload());
    const Frame challenge = next();
    FieldReader fields(challenge.payload);
    nonces.server = fields.text();
    knows_token_ = fields.text() == handshake.server_proof(nonces);
    channel_.send(FrameKind::kProof,
                  FieldWriter().text("a").text(handshake.client_proof(nonces, "a")).payload());
    return next().kind;
  }
  bool server_knows_token() const { return knows_token_; }
  void join(const std::string& id) {
    EXPECT_EQ(shake_hands("secret"), FrameKind::kWelcome);
    is_mute = false;
    channel_.send(FrameKind::kJoin,
                  encode(NodeDescription{.id = id, .host = id, .ranks = 2, .cores = 4}));
  }
  void send(FrameKind kind, const std::string& payload) { channel_.send(kind, payload); }

  // Sends heartbeats, unless the node is mute. The next frame that is no heartbeat. Throws
  // CommError at the end of the connection or after 10 s.
  Frame next() {
    const auto deadline = Clock::now() + 10s;
    bool open = true;
    while (true) {
      while (auto frame = channel_.next()) {
        if (frame->kind != FrameKind::kHeartbeat) return *std::move(frame);
        ++beats_;
      }
      if (!open) throw CommError("closed");
      if (!is_mute) channel_.send(FrameKind::kHeartbeat, "");
      if (Clock::now() > deadline) throw CommError("too late");
      if (rendezvous::wait_for(channel_.socket(), POLLIN, Clock::now() + 50ms))
        open = channel_.receive();
    }
  }
  GenerationPart prepared() {
    const Frame frame = next();
    EXPECT_EQ(frame.kind, FrameKind::kPrepare);
    const GenerationPart part = decode_part(frame.payload);
    send(FrameKind::kAgree, encode(StopOrder{.generation = part.generation.number}));
    return part;
  }
  int beats() const { return beats_; }

  bool is_mute = true;  // until it has joined

 private:
  rendezvous::FrameChannel channel_;
  bool knows_token_ = false;
  int beats_ = 0;
};

TEST(Coordinator, BringsNodesTogether) {
  const int port = free_port_for_test();
  Coordinator coordinator(options_at(port));
  TestNode a(port), b(port);
  a.join("a");
  b.join("b");
  const GenerationPart first = a.prepared(), second = b.prepared();
  EXPECT_EQ(first.run_id, second.run_id);
  EXPECT_EQ(first.port, second.port);
  EXPECT_NO_THROW(rendezvous::listen_on({.address = "127.0.0.1", .port = first.port}));
  EXPECT_EQ(a.next().kind, FrameKind::kBegin);
  EXPECT_EQ(b.next().kind, FrameKind::kBegin);
  a.send(FrameKind::kEnded, encode(GenerationOutcome{.generation = 1, .well = true}));
  const Frame told = b.next();
  EXPECT_EQ(told.kind, FrameKind::kOthersEnded);
  EXPECT_EQ(decode_stop(told.payload).generation, 1);
  b.send(FrameKind::kEnded, encode(GenerationOutcome{.generation = 1, .well = true}));
  EXPECT_EQ(decode_end(a.next().payload).code, 0);
  EXPECT_EQ(decode_end(b.next().payload).code, 0);
}

TEST(Coordinator, ProvesThatItKnowsTheTokenAndTurnsAwayWhoDoesNot) {
  const int port = free_port_for_test();
  Coordinator coordinator(options_at(port));
  TestNode right(port), wrong(port), mute(port);
  EXPECT_EQ(right.shake_hands("secret"), FrameKind::kWelcome);
  EXPECT_TRUE(right.server_knows_token());
  EXPECT_EQ(wrong.shake_hands("another"), FrameKind::kTurnedAway);
  EXPECT_FALSE(wrong.server_knows_token());
  mute.send(FrameKind::kJoin, encode(NodeDescription{.id = "a"}));  // without a handshake
  EXPECT_EQ(mute.next().kind, FrameKind::kTurnedAway);
}

TEST(Coordinator, ANodeThatSendsNothingIsLostAndToldSo) {
  const int port = free_port_for_test();
  Coordinator coordinator(options_at(port));
  TestNode a(port), b(port);
  a.join("a");
  b.join("b");
  a.prepared();
  b.prepared();
  EXPECT_EQ(a.next().kind, FrameKind::kBegin);
  EXPECT_EQ(b.next().kind, FrameKind::kBegin);
  b.is_mute = true;
  const Frame stop = a.next();
  EXPECT_EQ(stop.kind, FrameKind::kStop);
  EXPECT_THAT(decode_stop(stop.payload).why,
              HasSubstr("node b is lost: it has sent nothing for 1."));
  // Without this frame, node b would take the end of the connection for the coordinator's end.
  EXPECT_EQ(b.next().kind, FrameKind::kRegroup);
  EXPECT_THROW(b.next(), CommError);
  EXPECT_GT(b.beats(), 5) << "the coordinator itself sends heartbeats";
  a.send(FrameKind::kEnded, encode(GenerationOutcome{.generation = 1}));
  EXPECT_EQ(a.prepared().generation.nodes, std::vector<std::string>{"a"});
}

// With many messages the coordinator waits for less than a millisecond at a time.
TEST(Coordinator, SilenceIsNoticedAlsoIfAnotherNodeSendsMuch) {
  const int port = free_port_for_test();
  Coordinator coordinator(options_at(port));
  TestNode a(port), b(port);
  a.join("a");
  b.join("b");
  a.prepared();
  b.prepared();
  EXPECT_EQ(a.next().kind, FrameKind::kBegin);
  EXPECT_EQ(b.next().kind, FrameKind::kBegin);
  b.is_mute = true;
  auto order = std::async(std::launch::async, [&] { return b.next().kind; });
  const auto deadline = Clock::now() + 8s;
  while (order.wait_for(0s) != std::future_status::ready && Clock::now() < deadline) {
    a.send(FrameKind::kHeartbeat, "");
  }
  EXPECT_LT(Clock::now(), deadline);
  EXPECT_EQ(order.get(), FrameKind::kRegroup);
}

TEST(Coordinator, AFloodOfConnectionsKeepsNoNodeOut) {
  const int port = free_port_for_test();
  Coordinator coordinator(options_at(port));
  std::vector<FileDescriptor> strangers;
  while (strangers.size() < 300) {
    strangers.push_back(rendezvous::connect_to({.port = port}, Clock::now() + 5s));
  }
  const auto start = Clock::now();
  TestNode a(port);
  a.join("a");
  EXPECT_EQ(a.prepared().generation.number, 1);
  EXPECT_LT(Clock::now() - start, scaled(3s)) << "not only when the strangers' time is over";
}

TEST(Coordinator, DoesNotSpinIfNoDescriptorIsFree) {
  if (kHasThreadSanitizer) {
    GTEST_SKIP() << "IoFaults is not instrumented, so it looks like a race with the thread that "
                    "runs already";
  }
  const int port = free_port_for_test();
  Coordinator coordinator(options_at(port));
  const auto seconds_of_work = [] {
    timespec time{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  FileDescriptor waiting;
  {
    const IoFaults faults({.sockets = to_string(rendezvous::Endpoint{.port = port}),
                           .always = {{IoCall::kAccept, EMFILE}}});
    waiting = rendezvous::connect_to({.port = port}, Clock::now() + 5s);
    const double before = seconds_of_work();
    std::this_thread::sleep_for(1s);
    EXPECT_LT(seconds_of_work() - before, 0.2);
  }
  TestNode a(port);
  a.join("a");
  EXPECT_EQ(a.prepared().generation.number, 1);
}

TEST(Coordinator, ANodeThatConnectsAgainReplacesItsOldConnection) {
  const int port = free_port_for_test();
  Coordinator coordinator(options_at(port));
  TestNode a(port), b(port);
  a.join("a");
  b.join("b");
  a.prepared();
  b.prepared();
  EXPECT_EQ(a.next().kind, FrameKind::kBegin);
  TestNode again(port);
  again.join("b");
  EXPECT_EQ(a.next().kind, FrameKind::kStop);
  a.send(FrameKind::kEnded, encode(GenerationOutcome{.generation = 1}));
  EXPECT_EQ(again.prepared().generation.number, 2);
}

TEST(Coordinator, CannotListenWhereAnotherOneDoes) {
  const int port = free_port_for_test();
  Coordinator coordinator(options_at(port));
  EXPECT_THROW(Coordinator(options_at(port)), CommError);
}

}  // namespace
}  // namespace lockstep::launcher

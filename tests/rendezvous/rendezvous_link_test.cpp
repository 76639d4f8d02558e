#include "lockstep/rendezvous/rendezvous_link.h"

#include <future>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include "lockstep/base/error.h"
#include "tests/rendezvous/socket_pair.h"
#include "tests/support/rank_process.h"
#include "tests/support/slowdown.h"

namespace lockstep::rendezvous {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// The test acts as the server.
class RendezvousLinkTest : public ::testing::Test {
 protected:
  RendezvousLinkTest() : RendezvousLinkTest(socket_pair()) {}

  // The next frame of this kind. Beats are answered only if the test does so.
  Frame receive(FrameKind kind) {
    const auto deadline = deadline_in(kLimit);
    do {
      while (const auto frame = server_->next()) {
        if (frame->kind == kind) return *frame;
      }
    } while (wait_for(server_->socket(), POLLIN, deadline) && server_->receive());
    throw Error("there came no frame of kind {}", static_cast<int>(kind));
  }

  static std::int64_t id_of(const Frame& frame) { return FieldReader(frame.payload).integer(); }

  void answer(std::int64_t id, const std::string& text) {
    server_->send(FrameKind::kAnswer, FieldWriter().integer(id).text(text).payload());
  }

  void send_roster(const Roster& roster) {
    server_->send(FrameKind::kRoster, roster.view(Clock::now()).encode());
  }

  auto ask_later(const std::string& key, bool until_failure = false) {
    return std::async(std::launch::async, [=, this] {
      const auto answer = link_.ask({.kind = FrameKind::kAwait,
                                     .fields = FieldWriter().text(key),
                                     .deadline = deadline_in(kLimit),
                                     .until_failure = until_failure});
      return answer ? FieldReader(*answer).text() : "nothing";
    });
  }

 private:
  explicit RendezvousLinkTest(std::pair<FileDescriptor, FileDescriptor> sockets)
      : server_(std::make_unique<FrameChannel>(std::move(sockets.first))),
        link_(FrameChannel(std::move(sockets.second)), {.name = "the server", .world_size = 2}) {}

 protected:
  std::unique_ptr<FrameChannel> server_;
  RendezvousLink link_;
};

TEST_F(RendezvousLinkTest, AnswersFindTheirAskerInAnyOrder) {
  auto a = ask_later("a");
  const Frame first = receive(FrameKind::kAwait);
  auto b = ask_later("b");
  const Frame second = receive(FrameKind::kAwait);
  answer(id_of(second), "of b");
  EXPECT_EQ(b.get(), "of b");
  answer(999, "of no request");
  answer(id_of(first), "of a");
  EXPECT_EQ(a.get(), "of a");
}

TEST_F(RendezvousLinkTest, ARefusalIsThrown) {
  auto asked = ask_later("a");
  const Frame request = receive(FrameKind::kAwait);
  server_->send(FrameKind::kRefusal,
                FieldWriter().integer(id_of(request)).text("no such thing").payload());
  EXPECT_EQ(message_of<CommError>([&] { asked.get(); }), "the server: no such thing");
}

TEST_F(RendezvousLinkTest, AWaitThatEndsIsCancelled) {
  EXPECT_FALSE(link_.ask({.kind = FrameKind::kAwait, .deadline = deadline_in(1ms)}));
  const Frame request = receive(FrameKind::kAwait);
  EXPECT_EQ(id_of(receive(FrameKind::kCancel)), id_of(request));
}

TEST_F(RendezvousLinkTest, AFailureEndsTheWaitsThatHeedIt) {
  auto heeds = ask_later("a", true);
  receive(FrameKind::kAwait);
  auto does_not = ask_later("b");
  const Frame request = receive(FrameKind::kAwait);
  Roster roster(2);
  roster.join({.rank = 1, .world_size = 2}, Clock::now());
  roster.fail(1, "why");
  send_roster(roster);
  EXPECT_EQ(heeds.get(), "nothing");
  EXPECT_EQ(link_.failure()->rank, 1);
  link_.set_failure_if_none({.rank = 0, .reason = "later"});
  EXPECT_EQ(link_.failure()->rank, 1);
  answer(id_of(request), "still answered");
  EXPECT_EQ(does_not.get(), "still answered");
}

TEST_F(RendezvousLinkTest, AServerThatIsGoneIsAFailureOfRank0) {
  auto asked = ask_later("a");
  receive(FrameKind::kAwait);
  server_.reset();
  EXPECT_THAT(message_of<CommError>([&] { asked.get(); }),
              HasSubstr("the server: the server in rank 0's process is gone"));
  EXPECT_EQ(link_.failure()->rank, 0);
  EXPECT_THROW(link_.ask({}), CommError);
}

TEST_F(RendezvousLinkTest, AServerWithoutSenseIsGone) {
  server_->send(static_cast<FrameKind>(999), FieldWriter().integer(0).payload());
  ASSERT_TRUE(eventually([&] { return link_.failure().has_value(); }));
  EXPECT_THAT(link_.failure()->reason, HasSubstr("unknown kind 999"));
}

TEST_F(RendezvousLinkTest, ARank0ThatLeftMayTakeTheServerAlong) {
  Roster roster(2);
  roster.join({.rank = 0, .world_size = 2}, Clock::now());
  roster.leave(0);
  send_roster(roster);
  server_.reset();
  ASSERT_TRUE(eventually([&] { return !message_of<CommError>([&] { link_.ask({}); }).empty(); }));
  EXPECT_FALSE(link_.failure());
  EXPECT_TRUE(link_.peers()[0].left);
}

TEST_F(RendezvousLinkTest, BeatsCarryTheStatusAndWaitForEachOther) {
  link_.set_status("step 1");
  receive(FrameKind::kBeat);
  EXPECT_THROW(
      {
        // No second beat is sent: a server that was stopped would find thousands.
        const auto deadline = deadline_in(500ms);
        while (wait_for(server_->socket(), POLLIN, deadline)) {
          server_->receive();
          if (server_->next()) FAIL() << "a beat before the answer";
        }
        throw Error("none came");
      },
      Error);
  EXPECT_GE(link_.peers()[0].silent, 300ms) << "rank 0's process keeps the server";
  EXPECT_EQ(link_.peers()[1].silent, 0ms);

  send_roster(Roster(2));
  EXPECT_EQ(FieldReader(receive(FrameKind::kBeat).payload).text(), "step 1");
  EXPECT_LT(link_.peers()[0].silent, scaled(300ms));
}

TEST_F(RendezvousLinkTest, ClosingIsNoFailureAndEndsTheWaits) {
  auto asked = ask_later("a");
  receive(FrameKind::kAwait);
  link_.close("it was enough");
  EXPECT_EQ(message_of<CommError>([&] { asked.get(); }), "the server: it was enough");
  EXPECT_FALSE(link_.failure());
  EXPECT_TRUE(eventually([&] { return !server_->receive(); }));
  link_.close("again");
}

}  // namespace
}  // namespace lockstep::rendezvous

#include "lockstep/launch/rendezvous_service.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "tests/launch/rank_process.h"

namespace lockstep::launch {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Sent {
  std::uint64_t connection;
  FrameKind kind;
  std::string payload;

  std::int64_t id() const { return FieldReader(payload).integer(); }
};

class RendezvousServiceTest : public ::testing::Test {
 protected:
  void hello(std::uint64_t connection, int rank, const std::string& token = "secret") {
    const FieldWriter fields = FieldWriter().text(token).integer(rank).integer(2);
    service_.handle(connection, {.kind = FrameKind::kHello, .payload = fields.payload()});
  }

  // What is sent in answer to a message.
  std::vector<Sent> handle(std::uint64_t connection, FrameKind kind, const FieldWriter& fields) {
    sent_.clear();
    service_.handle(connection, {.kind = kind, .payload = fields.payload()});
    return sent_;
  }

  std::vector<Sent> sent_;
  RendezvousService service_{{.token = "secret", .world_size = 2},
                             [this](auto connection, auto kind, auto payload) {
                               sent_.push_back({connection, kind, std::string(payload)});
                             }};
};

TEST_F(RendezvousServiceTest, StrangersGetInWithTheTokenAlone) {
  for (const char* wrong : {"", "secreT", "secre", "secretsecret", "secret1"}) {
    EXPECT_EQ(message_of<CommError>([&] { hello(1, 0, wrong); }), "wrong token");
  }
  EXPECT_THAT(message_of<CommError>([&] {
                handle(1, FrameKind::kSet, FieldWriter().integer(1).text("k").text("v"));
              }),
              HasSubstr("expected a token first"));
  EXPECT_FALSE(service_.has_joined(1));
  EXPECT_THAT(sent_, IsEmpty());

  hello(1, 0);
  EXPECT_TRUE(service_.has_joined(1));
  ASSERT_EQ(sent_.size(), 2u);
  EXPECT_EQ(sent_[0].kind, FrameKind::kWelcome);
  EXPECT_EQ(sent_[1].kind, FrameKind::kRoster);
  EXPECT_THAT(message_of<CommError>([&] { hello(2, 0); }), HasSubstr("already joined"));
}

TEST_F(RendezvousServiceTest, AnAwaitIsAnsweredWithTheSet) {
  hello(1, 0);
  hello(2, 1);
  EXPECT_THAT(handle(2, FrameKind::kAwait, FieldWriter().integer(7).text("k")), IsEmpty());
  EXPECT_THAT(handle(2, FrameKind::kAwait, FieldWriter().integer(8).text("k")), IsEmpty());
  EXPECT_THAT(handle(2, FrameKind::kCancel, FieldWriter().integer(7)), IsEmpty());
  const auto sent = handle(1, FrameKind::kSet, FieldWriter().integer(3).text("k").text("v"));
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].connection, 1u);
  EXPECT_EQ(sent[0].id(), 3);
  EXPECT_EQ(sent[1].connection, 2u);
  EXPECT_EQ(sent[1].payload, FieldWriter().integer(8).integer(1).text("v").payload());
}

TEST_F(RendezvousServiceTest, ASumThatCannotBeIsRefusedAndChangesNothing) {
  hello(1, 0);
  handle(1, FrameKind::kSet, FieldWriter().integer(1).text("k").text("v"));
  const auto refused = handle(1, FrameKind::kAdd, FieldWriter().integer(2).text("k").integer(1));
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0].kind, FrameKind::kRefusal);
  EXPECT_EQ(refused[0].id(), 2);
  const auto kept = handle(1, FrameKind::kGet, FieldWriter().integer(3).text("k"));
  EXPECT_EQ(kept.at(0).payload, FieldWriter().integer(3).integer(1).text("v").payload());
}

TEST_F(RendezvousServiceTest, TheOthersHearOfAFailureBeforeItsReporterGoesOn) {
  hello(1, 0);
  hello(2, 1);
  const auto sent = handle(1, FrameKind::kFail, FieldWriter().integer(4).text("why"));
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_EQ(sent[1].connection, 2u);
  EXPECT_EQ(RosterView::decode(sent[1].payload).failure->reason, "why");
  EXPECT_EQ(sent[2].kind, FrameKind::kAnswer);
  EXPECT_EQ(service_.present(), 1);
}

TEST_F(RendezvousServiceTest, AClosedConnectionIsAFailureUnlessItsRankLeft) {
  hello(1, 0);
  hello(2, 1);
  handle(1, FrameKind::kLeave, FieldWriter().integer(1));
  sent_.clear();
  service_.closed(1, "broke");
  EXPECT_THAT(sent_, IsEmpty());
  EXPECT_EQ(service_.present(), 1);
  service_.closed(2, "broke");
  EXPECT_EQ(service_.present(), 0);
  service_.closed(3, "a stranger's");
}

TEST_F(RendezvousServiceTest, AMemberThatMakesNoSenseIsEnded) {
  hello(1, 0);
  EXPECT_THAT(message_of<CommError>(
                  [&] { handle(1, static_cast<FrameKind>(999), FieldWriter().integer(1)); }),
              HasSubstr("unknown kind 999"));
  EXPECT_THROW(handle(1, FrameKind::kSet, FieldWriter()), CommError);
  EXPECT_THROW(handle(1, FrameKind::kSet, FieldWriter().integer(1).text("k")), CommError);
}

}  // namespace
}  // namespace lockstep::launch

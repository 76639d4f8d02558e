#include "lockstep/rendezvous/rendezvous_service.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "tests/support/rank_process.h"

namespace lockstep::rendezvous {
namespace {

using ::testing::AllOf;
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
  // Joins as a rank that knows `token`.
  void join(std::uint64_t connection, int rank, const std::string& token = "secret") {
    const Handshake handshake(token, "run");
    Nonces nonces{.client = random_bytes(kNonceBytes)};
    service_.handle(connection, {.kind = FrameKind::kHello,
                                 .payload = FieldWriter().text(nonces.client).payload()});
    ASSERT_EQ(sent_.back().kind, FrameKind::kChallenge);
    FieldReader challenge(sent_.back().payload);
    nonces.server = challenge.text();
    server_proof_is_right_ = Handshake::matches(handshake.server_proof(nonces), challenge.text());
    const std::string claim = FieldWriter().integer(rank).integer(2).text("process").payload();
    last_proof_ = FieldWriter().text(claim).text(handshake.client_proof(nonces, claim)).payload();
    sent_.clear();
    service_.handle(connection, {.kind = FrameKind::kProof, .payload = last_proof_});
  }

  // The frames that are sent in answer to a message.
  std::vector<Sent> handle(std::uint64_t connection, FrameKind kind, const FieldWriter& fields) {
    sent_.clear();
    service_.handle(connection, {.kind = kind, .payload = fields.payload()});
    return sent_;
  }

  std::vector<Sent> sent_;
  std::string last_proof_;
  bool server_proof_is_right_ = false;
  bool may_return_ = false;
  RendezvousService service_{{.token = "secret",
                              .run = "run",
                              .world_size = 2,
                              .may_return = [this](const auto&) { return may_return_; }},
                             [this](auto connection, auto kind, auto payload) {
                               sent_.push_back({connection, kind, std::string(payload)});
                             }};
};

TEST_F(RendezvousServiceTest, StrangersGetInWithTheTokenAlone) {
  for (const char* wrong : {"", "secreT", "secre", "secretsecret", "secret1"}) {
    EXPECT_EQ(message_of<CommError>([&] { join(1, 0, wrong); }), "wrong token");
    EXPECT_FALSE(server_proof_is_right_) << "strangers cannot check the server's proof either";
    EXPECT_THAT(sent_, IsEmpty());
    service_.closed(1, "");
  }
  EXPECT_THAT(message_of<CommError>([&] {
                handle(1, FrameKind::kSet, FieldWriter().integer(1).text("k").text("v"));
              }),
              HasSubstr("expected a handshake first"));
  EXPECT_FALSE(service_.has_joined(1));
  EXPECT_THAT(sent_, IsEmpty());

  service_.opened(1, "10.0.0.2");
  join(1, 0);
  EXPECT_TRUE(server_proof_is_right_);
  EXPECT_TRUE(service_.has_joined(1));
  ASSERT_EQ(sent_.size(), 2u);
  EXPECT_EQ(sent_[0].kind, FrameKind::kWelcome);
  EXPECT_EQ(sent_[1].kind, FrameKind::kRoster);
  service_.opened(2, "10.0.0.3");
  EXPECT_THAT(message_of<CommError>([&] { join(2, 0); }),
              AllOf(HasSubstr("rank 0 has already joined from 10.0.0.2"), HasSubstr("10.0.0.3")));
}

TEST_F(RendezvousServiceTest, ARecordedHandshakeProvesNothing) {
  join(1, 0);
  const std::string recorded = last_proof_;
  service_.closed(1, "");
  // Replays the proof without a challenge, after another challenge, and twice after one challenge.
  const auto replay = [&](std::uint64_t connection) {
    return message_of<CommError>(
        [&] { service_.handle(connection, {.kind = FrameKind::kProof, .payload = recorded}); });
  };
  EXPECT_THAT(replay(2), HasSubstr("expected a hello"));
  const std::string nonce(kNonceBytes, 'x');
  handle(3, FrameKind::kHello, FieldWriter().text(nonce));
  EXPECT_EQ(replay(3), "wrong token");
  EXPECT_THAT(replay(3), HasSubstr("expected a hello"));
  EXPECT_FALSE(service_.has_joined(2) || service_.has_joined(3));
}

TEST_F(RendezvousServiceTest, AHelloHasItsSizeAndComesOnce) {
  for (const std::size_t size : {0u, 1u, 31u, 33u, 1000u}) {
    EXPECT_THAT(message_of<CommError>([&] {
                  handle(1, FrameKind::kHello, FieldWriter().text(std::string(size, 'x')));
                }),
                HasSubstr("expected 32 random bytes"));
    service_.closed(1, "");
  }
  const FieldWriter hello = FieldWriter().text(std::string(kNonceBytes, 'x'));
  EXPECT_EQ(handle(1, FrameKind::kHello, hello).size(), 1u);
  EXPECT_THAT(message_of<CommError>([&] { handle(1, FrameKind::kHello, hello); }),
              HasSubstr("expected one hello"));
}

TEST_F(RendezvousServiceTest, ARankThatMayReturnIsToldToTryAgain) {
  join(1, 0);
  may_return_ = true;
  join(2, 0);
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_EQ(sent_[0].kind, FrameKind::kComeLater);
  EXPECT_FALSE(service_.has_joined(2));
}

TEST_F(RendezvousServiceTest, AnAwaitIsAnsweredWithTheSet) {
  join(1, 0);
  join(2, 1);
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
  join(1, 0);
  handle(1, FrameKind::kSet, FieldWriter().integer(1).text("k").text("v"));
  const auto refused = handle(1, FrameKind::kAdd, FieldWriter().integer(2).text("k").integer(1));
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0].kind, FrameKind::kRefusal);
  EXPECT_EQ(refused[0].id(), 2);
  const auto kept = handle(1, FrameKind::kGet, FieldWriter().integer(3).text("k"));
  EXPECT_EQ(kept.at(0).payload, FieldWriter().integer(3).integer(1).text("v").payload());
}

TEST_F(RendezvousServiceTest, TheOthersHearOfAFailureBeforeItsReporterGoesOn) {
  join(1, 0);
  join(2, 1);
  const auto sent = handle(1, FrameKind::kFail, FieldWriter().integer(4).text("why"));
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_EQ(sent[1].connection, 2u);
  EXPECT_EQ(RosterView::decode(sent[1].payload).failure->reason, "why");
  EXPECT_EQ(sent[2].kind, FrameKind::kAnswer);
  EXPECT_EQ(service_.present(), 1);
}

TEST_F(RendezvousServiceTest, AClosedConnectionIsAFailureUnlessItsRankLeft) {
  join(1, 0);
  join(2, 1);
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
  join(1, 0);
  EXPECT_THAT(message_of<CommError>(
                  [&] { handle(1, static_cast<FrameKind>(999), FieldWriter().integer(1)); }),
              HasSubstr("unknown kind 999"));
  EXPECT_THROW(handle(1, FrameKind::kSet, FieldWriter()), CommError);
  EXPECT_THROW(handle(1, FrameKind::kSet, FieldWriter().integer(1).text("k")), CommError);
}

}  // namespace
}  // namespace lockstep::rendezvous

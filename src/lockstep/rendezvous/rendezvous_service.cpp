#include "lockstep/rendezvous/rendezvous_service.h"

#include <utility>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::rendezvous {
namespace {

std::string found(std::int64_t request, const std::string& value) {
  return FieldWriter().integer(request).integer(1).text(value).payload();
}

}  // namespace

RendezvousService::RendezvousService(RendezvousServiceOptions options, Send send)
    : options_(std::move(options)),
      handshake_(options_.token, options_.run),
      send_(std::move(send)),
      roster_(options_.world_size) {}

void RendezvousService::opened(std::uint64_t connection, std::string address) {
  strangers_[connection].address = std::move(address);
}

void RendezvousService::handle(std::uint64_t connection, const Frame& frame) {
  const auto member = ranks_.find(connection);
  if (member == ranks_.end()) {
    handle_stranger(connection, frame);
  } else if (frame.kind == FrameKind::kBeat) {
    FieldReader fields(frame.payload);
    const std::string status = fields.text();
    roster_.set_status(member->second, status, fields.text());
    send_roster(connection);
  } else {
    handle_request(connection, frame);
  }
}

void RendezvousService::handle_stranger(std::uint64_t connection, const Frame& frame) {
  if (frame.kind == FrameKind::kHello) return challenge(connection, frame);
  if (frame.kind == FrameKind::kProof) return join(connection, frame);
  throw CommError("expected a handshake first");
}

void RendezvousService::challenge(std::uint64_t connection, const Frame& hello) {
  Stranger& stranger = strangers_[connection];
  // Only one hello is answered. Otherwise a peer that sends hellos and never reads the answers
  // could fill the server's memory.
  if (std::exchange(stranger.greeted, true)) throw CommError("expected one hello, got a second");
  Nonces& nonces = stranger.nonces;
  nonces.client = FieldReader(hello.payload).text();
  if (nonces.client.size() != kNonceBytes) {
    throw CommError("expected {} random bytes in a hello, got {}", kNonceBytes,
                    nonces.client.size());
  }
  nonces.server = random_bytes(kNonceBytes);
  const FieldWriter fields =
      FieldWriter().text(nonces.server).text(handshake_.server_proof(nonces));
  send_(connection, FrameKind::kChallenge, fields.payload());
}

void RendezvousService::join(std::uint64_t connection, const Frame& proof) {
  Stranger& stranger = strangers_[connection];
  // Each challenge is good for one attempt.
  const Nonces nonces = std::exchange(stranger.nonces, {});
  if (nonces.server.empty()) throw CommError("expected a hello before a proof");
  FieldReader fields(proof.payload);
  const std::string claim = fields.text();
  // A peer that does not know the token learns nothing, and its claim is not used.
  if (!Handshake::matches(handshake_.client_proof(nonces, claim), fields.text())) {
    throw CommError("wrong token");
  }
  FieldReader claimed(claim);
  Roster::Applicant applicant{.rank = static_cast<int>(claimed.integer()),
                              .world_size = static_cast<int>(claimed.integer()),
                              .address = stranger.address,
                              .process = claimed.text()};
  // A process that starts another rendezvous at the same address reaches the old server until rank
  // 0 opens the next one.
  if (roster_.has_joined(applicant.rank) &&
      options_.may_return({.rank = applicant.rank, .same_process = roster_.knows(applicant)})) {
    return send_(connection, FrameKind::kComeLater, "");
  }
  if (const auto reason = roster_.join(applicant, Clock::now())) throw CommError(*reason);
  strangers_.erase(connection);
  ranks_[connection] = applicant.rank;
  options_.on_join(connection);
  send_(connection, FrameKind::kWelcome, "");
  send_roster_to_all();
}

void RendezvousService::handle_request(std::uint64_t connection, const Frame& frame) {
  FieldReader fields(frame.payload);
  const std::int64_t request = fields.integer();
  FieldWriter answer;
  answer.integer(request);
  switch (frame.kind) {
    case FrameKind::kSet: {
      const std::string key = fields.text();
      return set(connection, {.key = key, .value = fields.text()}, answer);
    }
    case FrameKind::kAdd: {
      const std::string key = fields.text();
      const std::int64_t delta = fields.integer();
      try {
        const std::int64_t sum = values_.sum(key, delta);
        return set(connection, {.key = key, .value = std::to_string(sum)}, answer.integer(sum));
      } catch (const CommError& error) {
        answer.text(error.what());
        return send_(connection, FrameKind::kRefusal, answer.payload());
      }
    }
    case FrameKind::kGet:
    case FrameKind::kAwait: {
      const std::string key = fields.text();
      const std::string* value = values_.find(key);
      if (value) return send_(connection, FrameKind::kAnswer, found(request, *value));
      if (frame.kind == FrameKind::kAwait) {
        return values_.wait(key, {.connection = connection, .request = request});
      }
      answer.integer(0);
      break;
    }
    case FrameKind::kCancel:
      return values_.cancel({.connection = connection, .request = request});
    case FrameKind::kErase:
      answer.integer(values_.erase(fields.text()) ? 1 : 0);
      break;
    case FrameKind::kCount:
      answer.integer(static_cast<std::int64_t>(values_.size()));
      break;
    // All ranks get the roster before this rank gets its answer: with the answer, the rank may end
    // its process, and if it is rank 0, the server ends with it.
    case FrameKind::kFail:
      if (roster_.fail(ranks_.at(connection), fields.text())) send_roster_to_all();
      break;
    case FrameKind::kLeave:
      roster_.leave(ranks_.at(connection));
      options_.on_leave(ranks_.at(connection));
      send_roster_to_all();
      break;
    default:
      throw CommError("it sent a message of the unknown kind {}", static_cast<int>(frame.kind));
  }
  send_(connection, FrameKind::kAnswer, answer.payload());
}

void RendezvousService::set(std::uint64_t connection, const KeyValue& entry,
                            const FieldWriter& answer) {
  const std::vector<KeyValues::Waiter> woken = values_.set(entry.key, entry.value);
  // The rank that set the key is answered first: what the other ranks do next may end the server.
  send_(connection, FrameKind::kAnswer, answer.payload());
  for (const KeyValues::Waiter& waiter : woken) {
    send_(waiter.connection, FrameKind::kAnswer, found(waiter.request, entry.value));
  }
}

void RendezvousService::closed(std::uint64_t connection, const std::string& reason) {
  strangers_.erase(connection);
  const auto member = ranks_.find(connection);
  if (member == ranks_.end()) return;
  const int rank = member->second;
  ranks_.erase(member);
  values_.cancel_all(connection);
  if (roster_.fail(rank, reason)) send_roster_to_all();
}

void RendezvousService::heard_of(std::uint64_t connection) {
  const auto member = ranks_.find(connection);
  if (member != ranks_.end()) roster_.heard_of(member->second, Clock::now());
}

void RendezvousService::send_roster(std::uint64_t connection) {
  send_(connection, FrameKind::kRoster, roster_.view(Clock::now()).encode());
}

void RendezvousService::send_roster_to_all() {
  const std::string roster = roster_.view(Clock::now()).encode();
  for (const auto& [connection, rank] : ranks_) send_(connection, FrameKind::kRoster, roster);
}

}  // namespace lockstep::rendezvous

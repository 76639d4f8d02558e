#include "lockstep/launch/rendezvous_service.h"

#include <utility>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::launch {
namespace {

// Takes as long for any guess of one length, so that time does not tell how much of it was right.
bool same_secret(std::string_view expected, std::string_view shown) {
  std::size_t difference = expected.size() ^ shown.size();
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const char other = expected[i % expected.size()];
    difference |= static_cast<unsigned char>(shown[i] ^ other);
    asm volatile("" : "+r"(difference));  // no short cut where one byte differs
  }
  return difference == 0;
}

std::string found(std::int64_t request, const std::string& value) {
  return FieldWriter().integer(request).integer(1).text(value).payload();
}

}  // namespace

RendezvousService::RendezvousService(RendezvousServiceOptions options, Send send)
    : token_(std::move(options.token)), send_(std::move(send)), roster_(options.world_size) {}

void RendezvousService::handle(std::uint64_t connection, const Frame& frame) {
  const auto member = ranks_.find(connection);
  if (member == ranks_.end()) {
    join(connection, frame);
  } else if (frame.kind == FrameKind::kBeat) {
    roster_.set_status(member->second, FieldReader(frame.payload).text());
    send_roster(connection);
  } else {
    handle_request(connection, frame);
  }
}

void RendezvousService::join(std::uint64_t connection, const Frame& frame) {
  if (frame.kind != FrameKind::kHello) throw CommError("expected a token first");
  FieldReader fields(frame.payload);
  // Before anything else is told.
  if (!same_secret(token_, fields.text())) throw CommError("wrong token");
  const auto rank = static_cast<int>(fields.integer());
  const auto world_size = static_cast<int>(fields.integer());
  if (const auto reason = roster_.join(rank, world_size, Clock::now())) throw CommError(*reason);
  ranks_[connection] = rank;
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
    // The others are told before the answer: who has it may end its process, and the server's.
    case FrameKind::kFail:
      if (roster_.fail(ranks_.at(connection), fields.text())) send_roster_to_all();
      break;
    case FrameKind::kLeave:
      roster_.leave(ranks_.at(connection));
      send_roster_to_all();
      break;
    default:
      throw CommError("it sent a message of the unknown kind {}", static_cast<int>(frame.kind));
  }
  send_(connection, FrameKind::kAnswer, answer.payload());
}

void RendezvousService::set(std::uint64_t connection, const Entry& entry,
                            const FieldWriter& answer) {
  const std::vector<KeyValues::Waiter> woken = values_.set(entry.key, entry.value);
  // First who set it: what the others do next may end the server.
  send_(connection, FrameKind::kAnswer, answer.payload());
  for (const KeyValues::Waiter& waiter : woken) {
    send_(waiter.connection, FrameKind::kAnswer, found(waiter.request, entry.value));
  }
}

void RendezvousService::closed(std::uint64_t connection, const std::string& reason) {
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

}  // namespace lockstep::launch

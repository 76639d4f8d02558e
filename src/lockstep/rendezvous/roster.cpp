#include "lockstep/rendezvous/roster.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/rendezvous/frame.h"

namespace lockstep::rendezvous {

std::string to_string(const PeerFailure& failure) {
  return fmt::format("rank {} failed: {}", failure.rank, failure.reason);
}

std::string RosterView::encode() const {
  FieldWriter fields;
  fields.integer(failure ? 1 : 0);
  if (failure) fields.integer(failure->rank).text(failure->reason);
  fields.integer(static_cast<std::int64_t>(peers.size()));
  for (const Peer& peer : peers) {
    fields.integer((peer.joined ? 1 : 0) | (peer.left ? 2 : 0) | (peer.failed ? 4 : 0));
    fields.text(peer.status).text(peer.waits_for).text(peer.reason).integer(peer.silent.count());
  }
  return fields.payload();
}

RosterView RosterView::decode(std::string_view payload) {
  FieldReader fields(payload);
  RosterView view;
  if (fields.integer() != 0) {
    const std::int64_t rank = fields.integer();
    view.failure = PeerFailure{.rank = static_cast<int>(rank), .reason = fields.text()};
  }
  const std::int64_t count = fields.integer();
  // The vector grows one by one, so that a wrong count runs out of fields, not of memory.
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t flags = fields.integer();
    Peer& peer = view.peers.emplace_back();
    peer.joined = (flags & 1) != 0;
    peer.left = (flags & 2) != 0;
    peer.failed = (flags & 4) != 0;
    peer.status = fields.text();
    peer.waits_for = fields.text();
    peer.reason = fields.text();
    peer.silent = std::chrono::milliseconds(fields.integer());
  }
  return view;
}

std::optional<std::string> Roster::join(const Applicant& applicant, Clock::time_point now) {
  if (applicant.world_size != world_size()) {
    return fmt::format("expected world size {}, got {}", world_size(), applicant.world_size);
  }
  if (applicant.rank < 0 || applicant.rank >= world_size()) {
    return fmt::format("expected a rank from 0 to {}, got {}", world_size() - 1, applicant.rank);
  }
  Member& member = at(applicant.rank);
  if (member.peer.joined) {
    return fmt::format(
        "rank {} has already joined from {}, and this process comes from {}: every process needs a "
        "rank of its own",
        applicant.rank, member.address, applicant.address);
  }
  member.peer.joined = true;
  member.address = applicant.address;
  member.process = applicant.process;
  member.heard = now;
  return std::nullopt;
}

bool Roster::knows(const Applicant& applicant) const {
  if (applicant.rank < 0 || applicant.rank >= world_size()) return false;
  const Member& member = members_[static_cast<std::size_t>(applicant.rank)];
  return member.peer.joined && member.process == applicant.process;
}

void Roster::set_status(int rank, std::string_view status, std::string_view waits_for) {
  at(rank).peer.status = status.substr(0, kLongestStatus);
  at(rank).peer.waits_for = waits_for.substr(0, kLongestStatus);
}

bool Roster::has_joined(int rank) const {
  return rank >= 0 && rank < world_size() && members_[static_cast<std::size_t>(rank)].peer.joined;
}

bool Roster::is_present(int rank) const {
  return rank >= 0 && rank < world_size() && members_[static_cast<std::size_t>(rank)].is_present();
}

bool Roster::fail(int rank, std::string_view reason) {
  Member& member = at(rank);
  if (!member.is_present()) return false;
  member.peer.failed = true;
  member.peer.reason = reason.substr(0, kLongestReason);
  if (!failure_) failure_ = PeerFailure{.rank = rank, .reason = member.peer.reason};
  return true;
}

int Roster::present() const {
  return static_cast<int>(
      std::count_if(members_.begin(), members_.end(), std::mem_fn(&Member::is_present)));
}

RosterView Roster::view(Clock::time_point now) const {
  RosterView view{.failure = failure_};
  for (const Member& member : members_) {
    Peer& peer = view.peers.emplace_back(member.peer);
    if (member.is_present()) {
      peer.silent = std::chrono::duration_cast<std::chrono::milliseconds>(now - member.heard);
    }
  }
  return view;
}

}  // namespace lockstep::rendezvous

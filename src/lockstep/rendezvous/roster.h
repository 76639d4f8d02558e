// Who of a run is there: kept by the rendezvous' server, sent to every rank.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/rendezvous/socket.h"

namespace lockstep::rendezvous {

// What is known of one rank.
struct Peer {
  bool joined = false;
  bool left = false;           // in order
  bool failed = false;         // reported it, or its connection broke
  std::string status = {};     // what it last said of itself
  std::string waits_for = {};  // the ranks it has waited for some time: "3 7"
  std::string reason = {};     // of its failure
  // Since the server last heard of it, while it should be heard. A stopped process falls silent.
  std::chrono::milliseconds silent{0};
};

// The first failure of a run: those that follow are mostly its consequences.
struct PeerFailure {
  int rank = 0;
  std::string reason = {};
};

// "rank 2 failed: out of memory"
std::string to_string(const PeerFailure& failure);

// What the server knew at a moment, as it is sent.
struct RosterView {
  std::vector<Peer> peers = {};
  std::optional<PeerFailure> failure = {};

  std::string encode() const;
  static RosterView decode(std::string_view payload);
};

// Longer ones are cut to so many bytes: every rank gets those of every other.
inline constexpr std::size_t kLongestStatus = 1024;
inline constexpr std::size_t kLongestReason = 16384;

// Not thread-safe.
class Roster {
 public:
  explicit Roster(int world_size) : members_(static_cast<std::size_t>(world_size)) {}

  int world_size() const { return static_cast<int>(members_.size()); }

  // Who asks to join, and as what.
  struct Applicant {
    int rank = 0;
    int world_size = 1;
    std::string address = {};  // where it comes from
    std::string process = {};  // unique to the process
  };
  // Why this rank cannot join, or nothing: it has joined.
  std::optional<std::string> join(const Applicant& applicant, Clock::time_point now);
  // Whether this very process has joined as this rank before.
  bool knows(const Applicant& applicant) const;
  void heard_of(int rank, Clock::time_point now) { at(rank).heard = now; }
  void set_status(int rank, std::string_view status, std::string_view waits_for = "");
  void leave(int rank) { at(rank).peer.left = true; }
  // False where the rank has left or failed before: nothing changed.
  bool fail(int rank, std::string_view reason);

  // Ranks that joined and neither left nor failed.
  int present() const;
  bool is_present(int rank) const;
  bool has_joined(int rank) const;
  RosterView view(Clock::time_point now) const;

 private:
  struct Member {
    Peer peer = {};
    std::string address = {};
    std::string process = {};
    Clock::time_point heard = {};

    bool is_present() const { return peer.joined && !peer.left && !peer.failed; }
  };
  Member& at(int rank) { return members_.at(static_cast<std::size_t>(rank)); }

  std::vector<Member> members_;
  std::optional<PeerFailure> failure_;
};

}  // namespace lockstep::rendezvous

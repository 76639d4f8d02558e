// Which ranks of a run are present. The rendezvous server keeps this list and sends it to every
// rank.
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
  bool left = false;           // it has left without a failure
  bool failed = false;         // it reported a failure, or its connection broke
  std::string status = {};     // its last Rendezvous::set_status()
  std::string waits_for = {};  // the ranks that it has been waiting for: "3 7"
  std::string reason = {};     // of its failure
  // Time since the server last received something from it, while it is present. A stopped process
  // sends nothing.
  std::chrono::milliseconds silent{0};
};

// The first failure of a run. Later failures are mostly consequences of it.
struct PeerFailure {
  int rank = 0;
  std::string reason = {};
};

// "rank 2 failed: out of memory"
std::string to_string(const PeerFailure& failure);

// The roster at one moment, as the server sends it.
struct RosterView {
  std::vector<Peer> peers = {};
  std::optional<PeerFailure> failure = {};

  std::string encode() const;
  static RosterView decode(std::string_view payload);
};

// A status or reason is cut to this many bytes, because every rank receives those of all ranks.
inline constexpr std::size_t kLongestStatus = 1024;
inline constexpr std::size_t kLongestReason = 16384;

// Not thread-safe.
class Roster {
 public:
  explicit Roster(int world_size) : members_(static_cast<std::size_t>(world_size)) {}

  int world_size() const { return static_cast<int>(members_.size()); }

  // A process that wants to join, and as which rank.
  struct Applicant {
    int rank = 0;
    int world_size = 1;
    std::string address = {};  // of its host
    std::string process = {};  // unique to the process
  };
  // Adds the rank. Returns the reason if it cannot join, and nothing if it has joined.
  std::optional<std::string> join(const Applicant& applicant, Clock::time_point now);
  // Whether the same process has joined as this rank before.
  bool knows(const Applicant& applicant) const;
  void heard_of(int rank, Clock::time_point now) { at(rank).heard = now; }
  void set_status(int rank, std::string_view status, std::string_view waits_for = "");
  void leave(int rank) { at(rank).peer.left = true; }
  // False, and nothing changes, if the rank has left or failed before.
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

// What the rendezvous' server does with a message, apart from how messages come and go.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "lockstep/rendezvous/frame.h"
#include "lockstep/rendezvous/handshake.h"
#include "lockstep/rendezvous/key_values.h"
#include "lockstep/rendezvous/roster.h"

namespace lockstep::rendezvous {

struct RendezvousServiceOptions {
  std::string token = {};  // a peer that cannot prove that it knows it does not join
  std::string run = {};    // the run's name, part of the proofs
  int world_size = 1;
  // Told of a connection's rank before the rank itself is welcomed.
  std::function<void(std::uint64_t connection)> on_join = [](std::uint64_t) {};
  // Asked about a rank that joined before and comes again, in the same process or in another. True:
  // it is to try again; false: it is turned away.
  struct Return {
    int rank = 0;
    bool same_process = false;
  };
  std::function<bool(const Return&)> may_return = [](const Return&) { return false; };
};

// Not thread-safe. Connections have numbers that are never used again.
class RendezvousService {
 public:
  using Send = std::function<void(std::uint64_t connection, FrameKind, std::string_view payload)>;

  RendezvousService(RendezvousServiceOptions options, Send send);

  // A connection that did nothing yet, and the address it comes from.
  void opened(std::uint64_t connection, std::string address);

  // Answers, now or later. Throws CommError with the reason for which to end the connection: a
  // stranger that may not join, a member that makes no sense.
  void handle(std::uint64_t connection, const Frame& frame);

  // A member that did not leave before has failed.
  void closed(std::uint64_t connection, const std::string& reason);

  void heard_of(std::uint64_t connection);
  bool has_joined(std::uint64_t connection) const { return ranks_.contains(connection); }
  // Ranks that joined and neither left nor failed.
  int present() const { return roster_.present(); }
  bool is_present(int rank) const { return roster_.is_present(rank); }
  int rank_of(std::uint64_t connection) const { return ranks_.at(connection); }

 private:
  struct Entry {
    std::string key = {};
    std::string value = {};
  };

  // A connection that has not joined.
  struct Stranger {
    std::string address = {};
    bool greeted = false;  // its hello was answered
    Nonces nonces = {};    // of a challenge that was not answered yet
  };

  void handle_stranger(std::uint64_t connection, const Frame& frame);
  void challenge(std::uint64_t connection, const Frame& hello);
  void join(std::uint64_t connection, const Frame& proof);
  void handle_request(std::uint64_t connection, const Frame& frame);
  // Sends `answer` to who set it, and the value to who waits for it.
  void set(std::uint64_t connection, const Entry& entry, const FieldWriter& answer);
  void send_roster(std::uint64_t connection);
  void send_roster_to_all();

  RendezvousServiceOptions options_;
  Handshake handshake_;
  Send send_;
  Roster roster_;
  KeyValues values_;
  std::map<std::uint64_t, Stranger> strangers_;
  std::map<std::uint64_t, int> ranks_;  // of the connections that joined
};

}  // namespace lockstep::rendezvous

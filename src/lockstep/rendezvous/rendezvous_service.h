// How the rendezvous server handles a message. Sending and receiving is the caller's part.
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
  std::string token = {};  // a peer must prove that it knows the token to join
  std::string run = {};    // the run's name, part of the proofs
  int world_size = 1;
  // Called when a connection has joined as a rank, before the welcome is sent to it.
  std::function<void(std::uint64_t connection)> on_join = [](std::uint64_t) {};
  // Called when a rank has left, before it gets an answer.
  std::function<void(int rank)> on_leave = [](int) {};
  // Called when a rank that joined before wants to join again, from the same process or another
  // one. True: it is told to try again later. False: it is turned away.
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

  // A new connection, and the address of the peer.
  void opened(std::uint64_t connection, std::string address);

  // Handles a frame; the answer may be sent later. Throws CommError if the caller must close the
  // connection: a stranger may not join, or a member sent an invalid message.
  void handle(std::uint64_t connection, const Frame& frame);

  // The connection is closed. A member that did not leave before has failed.
  void closed(std::uint64_t connection, const std::string& reason);

  void heard_of(std::uint64_t connection);
  bool has_joined(std::uint64_t connection) const { return ranks_.contains(connection); }
  // Ranks that joined and neither left nor failed.
  int present() const { return roster_.present(); }
  bool is_present(int rank) const { return roster_.is_present(rank); }
  int rank_of(std::uint64_t connection) const { return ranks_.at(connection); }

 private:
  struct KeyValue {
    std::string key = {};
    std::string value = {};
  };

  // A connection that has not joined yet.
  struct Stranger {
    std::string address = {};
    bool greeted = false;  // its hello was answered
    Nonces nonces = {};    // of the challenge that it has not answered yet
  };

  void handle_stranger(std::uint64_t connection, const Frame& frame);
  void challenge(std::uint64_t connection, const Frame& hello);
  void join(std::uint64_t connection, const Frame& proof);
  void handle_request(std::uint64_t connection, const Frame& frame);
  // Sends `answer` to the connection that set the key, and the value to those that wait for it.
  void set(std::uint64_t connection, const KeyValue& entry, const FieldWriter& answer);
  void send_roster(std::uint64_t connection);
  void send_roster_to_all();

  RendezvousServiceOptions options_;
  Handshake handshake_;
  Send send_;
  Roster roster_;
  KeyValues values_;
  std::map<std::uint64_t, Stranger> strangers_;
  std::map<std::uint64_t, int> ranks_;  // the rank of each connection that joined
};

}  // namespace lockstep::rendezvous

// What the rendezvous' server does with a message, apart from how messages come and go.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "lockstep/launch/frame.h"
#include "lockstep/launch/key_values.h"
#include "lockstep/launch/roster.h"

namespace lockstep::launch {

struct RendezvousServiceOptions {
  std::string token = {};  // who does not show it does not join
  int world_size = 1;
};

// Not thread-safe. Connections have numbers that are never used again.
class RendezvousService {
 public:
  using Send = std::function<void(std::uint64_t connection, FrameKind, std::string_view payload)>;

  RendezvousService(RendezvousServiceOptions options, Send send);

  // Answers, now or later. Throws CommError with the reason for which to end the connection: a
  // stranger who may not join, a member who makes no sense.
  void handle(std::uint64_t connection, const Frame& frame);

  // A member that did not leave before has failed.
  void closed(std::uint64_t connection, const std::string& reason);

  void heard_of(std::uint64_t connection);
  bool has_joined(std::uint64_t connection) const { return ranks_.contains(connection); }
  // Ranks that joined and neither left nor failed.
  int present() const { return roster_.present(); }

 private:
  struct Entry {
    std::string key = {};
    std::string value = {};
  };

  void join(std::uint64_t connection, const Frame& frame);
  void handle_request(std::uint64_t connection, const Frame& frame);
  // Sends `answer` to who set it, and the value to who waits for it.
  void set(std::uint64_t connection, const Entry& entry, const FieldWriter& answer);
  void send_roster(std::uint64_t connection);
  void send_roster_to_all();

  std::string token_;
  Send send_;
  Roster roster_;
  KeyValues values_;
  std::map<std::uint64_t, int> ranks_;  // of the connections that joined
};

}  // namespace lockstep::launch

// A rank's client of its run's rendezvous: keys and values that all ranks share, and which ranks
// are still present.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/rendezvous/frame.h"
#include "lockstep/rendezvous/roster.h"

namespace lockstep::rendezvous {

class RendezvousLink;

struct RendezvousOptions {
  std::string address = "127.0.0.1";  // of the server: a name or an IP, v4 or v6
  int port = 0;
  std::string token = {};  // the same as the server's; it is never sent, see handshake.h
  std::string run = {};    // the run's name, the same as the server's
  int rank = 0;
  int world_size = 1;
  std::chrono::milliseconds timeout{60000};  // for every answer of the server, and for get()
  // Time limit for finding the server, which may start later than this rank. Default: `timeout`.
  std::optional<std::chrono::milliseconds> join_timeout = {};
};

// One connection to the server, and a thread that serves it. Any thread may call any function; a
// thread that waits does not block other threads. The functions throw CommError if the server does
// not answer or is gone. A process that has a Rendezvous must not fork: the child would keep the
// connection open, and the rank would seem to be alive.
class Rendezvous {
 public:
  using Peer = rendezvous::Peer;
  using Failure = PeerFailure;

  // Finds the server and joins. Throws CommError with the address and the time waited if there is
  // no server. Throws CommError with "turned away: ..." if the token, the world size or the rank is
  // wrong, or if the rank has joined before: a rank can join only once, even after it has left.
  explicit Rendezvous(RendezvousOptions options);

  // Calls leave().
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  // A key and its value may have at most 64 MB together.
  void set(std::string_view key, std::string_view value);

  // Waits until the key is set. Throws CommError with the key and the time at the timeout. Throws
  // at once if a rank fails, because that rank may be the one that should set the key.
  std::string get(std::string_view key) { return get(key, options_.timeout); }
  std::string get(std::string_view key, std::chrono::milliseconds timeout) {
    return get(key, {.until = deadline_in(timeout), .timeout = timeout});
  }
  std::optional<std::string> try_get(std::string_view key);

  // Waits like get() until all keys are set. The timeout is for all of them together.
  void wait(std::span<const std::string> keys, std::chrono::milliseconds timeout);
  // Whether all keys are set.
  bool check(std::span<const std::string> keys);

  // Adds to the key's value, a decimal number, and returns the sum. A key that is not set counts as
  // 0.
  std::int64_t add(std::string_view key, std::int64_t delta);
  // Whether there was such a key.
  bool erase(std::string_view key);
  std::int64_t num_keys();

  // Sets the status that other ranks see in peers() about 100 ms later; at most kLongestStatus
  // bytes. It is cheap: the caller's thread sends nothing.
  void set_status(std::string status);

  // Tells the other ranks which ranks this one has been waiting for, as numbers with spaces
  // between; "" if it no longer waits. It is as cheap as set_status().
  void set_waits_for(std::string ranks);

  // This host's address in the connection to the server.
  const std::string& local_address() const;

  // Every rank, as last known: some 100 ms old; a rank that joins, leaves or fails is known at
  // once. If the server does not answer, rank 0 is shown as silent, and the other ranks do not
  // change.
  std::vector<Peer> peers() const;

  // The first rank that reported a failure or whose connection broke without leave(), for example
  // by kill -9. If the server's process ends, rank 0 has failed, unless rank 0 has left before.
  std::optional<Failure> failure() const;

  // Reports to the other ranks that this rank fails, and waits at most a second until the server
  // has sent the report. Never throws. Does nothing after leave() or an earlier fail().
  void fail(const std::string& reason);

  // This rank is done: its end is no failure. After fail(), this only closes the connection. No
  // request can be made any more.
  void leave();

  const RendezvousOptions& options() const { return options_; }

 private:
  struct Limit {
    Clock::time_point until = {};
    std::chrono::milliseconds timeout{0};  // the timeout that the caller gave, for messages
  };
  std::string get(std::string_view key, const Limit& limit);
  // Sends a request about a key and returns the fields of the answer.
  std::string ask(FrameKind kind, std::string_view key, const FieldWriter& fields = {});

  const RendezvousOptions options_;
  const std::string name_;  // in messages
  const std::unique_ptr<RendezvousLink> link_;
  std::mutex ending_;  // one fail() or leave() at a time
  bool ended_ = false;
};

}  // namespace lockstep::rendezvous

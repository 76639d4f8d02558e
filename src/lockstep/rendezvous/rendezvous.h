// A rank's part in the rendezvous of its run: keys and values that all ranks share, and who of them
// is still there.
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
  std::string token = {};  // the server's; it is proved, not sent
  std::string run = {};    // the run's name, the same as the server's
  int rank = 0;
  int world_size = 1;
  std::chrono::milliseconds timeout{60000};  // for any answer of the server, and get()'s
  // To find the server, which may start later than this rank. Default: the same.
  std::optional<std::chrono::milliseconds> join_timeout = {};
};

// One connection and a thread that keeps it. Any thread may call anything; one that waits does not
// hold up the others. All throw CommError where the server does not answer or is gone. A process
// that has one must not fork: the child would keep the connection, and so the rank, alive.
class Rendezvous {
 public:
  using Peer = rendezvous::Peer;
  using Failure = PeerFailure;

  // Finds the server and joins. Throws CommError naming the address and the time waited, or
  // "turned away: ..." where the server does not know the token, where the world size or the rank
  // is wrong, or the rank has joined before: a rank joins once, also where it left.
  explicit Rendezvous(RendezvousOptions options);

  // leave(), unless fail() was called.
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  // A key and its value have 64 MB together.
  void set(std::string_view key, std::string_view value);

  // Waits until the key is set. Throws CommError with the key and the time at the timeout, and at
  // once where a rank's failure becomes known: who would set it may be gone.
  std::string get(std::string_view key) { return get(key, options_.timeout); }
  std::string get(std::string_view key, std::chrono::milliseconds timeout) {
    return get(key, {.until = deadline_in(timeout), .timeout = timeout});
  }
  std::optional<std::string> try_get(std::string_view key);

  // As get() for all of them, within the timeout together.
  void wait(std::span<const std::string> keys, std::chrono::milliseconds timeout);
  // Whether all of them are set.
  bool check(std::span<const std::string> keys);

  // Adds to a decimal number, 0 where there is none yet, and returns the sum.
  std::int64_t add(std::string_view key, std::int64_t delta);
  // Whether there was such a key.
  bool erase(std::string_view key);
  std::int64_t num_keys();

  // What the others see of this rank, in some 100 ms; at most kLongestStatus bytes. Cheap: nothing
  // is sent by the caller.
  void set_status(std::string status);

  // Tells the others which ranks this one has waited for some time, as numbers with spaces between;
  // "" where it waits no longer. As cheap as set_status().
  void set_waits_for(std::string ranks);

  // This host's address on the way to the server.
  const std::string& local_address() const;

  // Every rank, as last known: some 100 ms old, joins, leaves and failures at once. Where the
  // server itself falls silent it is rank 0 that is silent, the others stay as they were.
  std::vector<Peer> peers() const;

  // The first rank that reported a failure or whose connection broke without leave(), be it by
  // kill -9. An end of the server's process is a failure of rank 0, unless rank 0 has left.
  std::optional<Failure> failure() const;

  // Tells the others that this rank fails. They know when it returns, or it gave up after a second:
  // never throws. Does nothing after leave() or an earlier fail().
  void fail(const std::string& reason);

  // This rank is done and not missed; after fail() it only closes. Nothing can be asked any more.
  void leave();

  const RendezvousOptions& options() const { return options_; }

 private:
  struct Limit {
    Clock::time_point until = {};
    std::chrono::milliseconds timeout{0};  // as it was asked for, in messages
  };
  std::string get(std::string_view key, const Limit& limit);
  // The fields of the answer to a request about a key.
  std::string ask(FrameKind kind, std::string_view key, const FieldWriter& fields = {});

  const RendezvousOptions options_;
  const std::string name_;  // in messages
  const std::unique_ptr<RendezvousLink> link_;
  std::mutex ending_;  // one fail() or leave() at a time
  bool ended_ = false;
};

}  // namespace lockstep::rendezvous

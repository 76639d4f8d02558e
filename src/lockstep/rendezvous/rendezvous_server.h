// The rendezvous server of a run: it keeps keys and values in rank 0's process. It replaces c10d's
// TCPStore, which listens on every interface and lets any process read and write.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace lockstep::rendezvous {

struct ServerOptions {
  // The server listens only on this address: a name or an IP, v4 or v6; "*" is every interface.
  std::string address = "127.0.0.1";
  int port = 0;            // 0: any free port, see port()
  std::string token = {};  // must not be empty; a peer must prove that it knows it (handshake.h)
  std::string run = {};    // the run's name; tells apart runs that share a token
  int world_size = 1;      // how many ranks there will be
  std::chrono::milliseconds patience{5000};  // for a peer to join after it has connected
};

// One thread that never waits for a peer: a stopped or hostile peer does not delay the others. Only
// processes that know the token can join; the token is not sent. What members send each other is
// not encrypted, so the token does not protect against attackers that can read or change packets on
// the network.
class RendezvousServer {
 public:
  // The server listens when this returns. Throws ConfigError if an option is invalid, CommError if
  // it cannot listen.
  explicit RendezvousServer(ServerOptions options);

  // Ends at once and closes every connection. Ranks that are still connected see this as a failure
  // of rank 0, unless rank 0 has left.
  ~RendezvousServer();

  int port() const;

  // This host's address to which ranks of other hosts have connected. "" if none has joined yet.
  std::string reached_at() const;

  // Whether the rank has joined and neither left nor failed.
  bool is_present(int rank) const;

  // Called when all ranks have left this server and use another one. From now on, a rank that
  // joined before is told to try later in two cases: it is the same process, which starts another
  // rendezvous, or the rank is no longer taken. Another process with a rank that is taken is turned
  // away. The server's thread calls `is_taken`.
  void keep_listening(std::function<bool(int rank)> is_taken);

  // Stops listening and closes every connection, as the destructor does. Only port() may follow.
  void close();

  // Waits until every rank that joined has left or failed. Then destroying the server disturbs no
  // rank. False at the timeout.
  bool wait_until_empty(std::chrono::milliseconds timeout);

 private:
  class EventLoop;
  int port_ = 0;
  std::unique_ptr<EventLoop> loop_;
};

}  // namespace lockstep::rendezvous

// Where the ranks of a run meet: a server of keys and values in rank 0's process. It stands in for
// c10d's TCPStore, which listens on every interface and lets anybody read and write.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace lockstep::rendezvous {

struct ServerOptions {
  // Listens on exactly this: a name or an IP, v4 or v6; "*" is every interface.
  std::string address = "127.0.0.1";
  int port = 0;            // 0: any that is free, see port()
  std::string token = {};  // must not be empty; a peer must prove that it knows it (handshake.h)
  std::string run = {};    // the run's name; tells apart runs that share a token
  int world_size = 1;      // how many ranks there will be
  std::chrono::milliseconds patience{5000};  // with a peer that connects and says nothing
};

// One thread that never waits for a peer: a stopped or a hostile one does not hold up the others.
// The token keeps strangers out and is not sent. What members tell each other afterwards is sent in
// clear, so whoever can read or change packets on the network's path is not kept out.
class RendezvousServer {
 public:
  // Listens when it returns. Throws ConfigError for options without meaning, CommError where it
  // cannot listen.
  explicit RendezvousServer(ServerOptions options);

  // Ends at once and closes every connection: to ranks still there this is a failure of rank 0,
  // unless rank 0 has left.
  ~RendezvousServer();

  int port() const;

  // This host's address that ranks of other hosts came to, or "" where none has come.
  std::string reached_at() const;

  // Whether the rank has joined and neither left nor failed.
  bool is_present(int rank) const;

  // The meeting is over, and the ranks have gone on to another place. From now on, a rank that
  // comes again is told to try later if it is the same process, which wants to meet once more, or
  // if its place is no longer taken; another process with a rank that is taken is turned away.
  // `is_taken` is called by the server's thread.
  void keep_listening(std::function<bool(int rank)> is_taken);

  // Stops listening and closes every connection, as the destructor does. Only port() may follow.
  void close();

  // Waits until every rank that joined has left or failed, to be destroyed without cutting anybody
  // off. False where that took longer.
  bool wait_until_empty(std::chrono::milliseconds timeout);

 private:
  class EventLoop;
  int port_ = 0;
  std::unique_ptr<EventLoop> loop_;
};

}  // namespace lockstep::rendezvous

// Where the ranks of a run meet: a server of keys and values in rank 0's process. It stands in for
// c10d's TCPStore, which listens on every interface and lets anybody read and write.
#pragma once

#include <chrono>
#include <memory>
#include <string>

namespace lockstep::launch {

struct ServerOptions {
  std::string address = "127.0.0.1";  // listens on exactly this: a name or an IP, v4 or v6
  int port = 0;                       // 0: any that is free, see port()
  std::string token = {};             // must not be empty; a peer that does not show it cannot join
  int world_size = 1;                 // how many ranks there will be
  std::chrono::milliseconds patience{5000};  // with a peer that connects and says nothing
};

// One thread that never waits for a peer: a stopped or a hostile one does not hold up the others.
// The token keeps strangers out; it is sent in clear, as are the values, so the network itself must
// be trusted not to listen.
class RendezvousServer {
 public:
  // Listens when it returns. Throws ConfigError for options without meaning, CommError where it
  // cannot listen.
  explicit RendezvousServer(ServerOptions options);

  // Ends at once and closes every connection: to ranks still there this is a failure of rank 0,
  // unless rank 0 has left.
  ~RendezvousServer();

  int port() const;

  // Waits until every rank that joined has left or failed, to be destroyed without cutting anybody
  // off. False where that took longer.
  bool wait_until_empty(std::chrono::milliseconds timeout);

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace lockstep::launch

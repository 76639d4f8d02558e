// A rank's connection to the rendezvous server, and the thread that serves it. The thread sends
// requests and beats, and receives answers and the roster.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/process/background.h"
#include "lockstep/rendezvous/frame_channel.h"
#include "lockstep/rendezvous/roster.h"

namespace lockstep::rendezvous {

struct RendezvousLinkOptions {
  std::string name = {};  // "rendezvous at 127.0.0.1:4711", in messages
  int world_size = 1;
};

class RendezvousLink {
 public:
  struct Request {
    FrameKind kind = FrameKind::kGet;
    FieldWriter fields = {};  // the fields that follow the request's id
    Clock::time_point deadline = {};
    bool until_failure = false;  // stop waiting when a rank has failed
  };

  // Takes over a channel on which the rank has joined.
  RendezvousLink(FrameChannel channel, RendezvousLinkOptions options);
  // Closes the connection.
  ~RendezvousLink();

  // The answer's fields. Nothing if there was no answer until the deadline, or until a failure.
  // Throws CommError if the request was refused or the connection is lost or closed.
  std::optional<std::string> ask(const Request& request);

  void set_status(std::string status);
  void set_waits_for(std::string ranks);
  const std::string& local_address() const { return local_address_; }
  std::vector<Peer> peers() const;
  std::optional<PeerFailure> failure() const;
  // Records a failure of this rank that the server may not know, so that failure() returns it.
  void set_failure_if_none(PeerFailure failure);

  // From now on the end of the connection is no failure.
  void expect_end();
  // Ends the thread and the connection. Threads that wait in ask() throw CommError with the reason.
  void close(const std::string& reason);

 private:
  struct Outgoing {
    FrameKind kind;
    std::string payload;
  };
  struct Waiting {
    bool done = false;
    bool refused = false;
    std::string fields = {};
  };

  void run();
  bool send_pending();  // false: close() was called
  void beat_if_due();
  bool wait_and_receive();  // false: the server is gone
  void take(const Frame& frame);
  void lose(const std::string& reason);

  const RendezvousLinkOptions options_;
  const process::Wakeup wakeup_;
  const std::string local_address_;  // of this end of the connection

  // Only the thread uses these.
  FrameChannel channel_;
  // The next beat is sent only after an answer, so that a server that was stopped for a while finds
  // one beat of this rank, not thousands.
  bool beat_answered_ = true;
  Clock::time_point last_beat_ = {};

  mutable std::mutex mutex_;  // protects the following members, up to lost_
  std::condition_variable changed_;
  std::vector<Outgoing> outgoing_;
  std::map<std::int64_t, Waiting> waiting_;  // requests by their id
  std::int64_t next_request_ = 1;
  std::string status_;
  std::string waits_for_;
  RosterView roster_;
  std::chrono::milliseconds server_silent_{0};
  std::optional<PeerFailure> failure_;
  bool end_expected_ = false;
  bool stop_ = false;
  std::optional<std::string> lost_;  // why no request can be made any more

  std::mutex joining_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace lockstep::rendezvous

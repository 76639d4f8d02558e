// A non-blocking socket that speaks frames: neither sending nor receiving ever waits.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/file.h"
#include "lockstep/rendezvous/frame.h"

namespace lockstep::rendezvous {

// Not thread-safe.
class FrameChannel {
 public:
  explicit FrameChannel(FileDescriptor socket) : socket_(std::move(socket)) {}

  const FileDescriptor& socket() const { return socket_; }

  // Sends what the socket takes now and keeps the rest for flush(). Whether the peer is still there
  // is receive()'s to tell.
  void send(FrameKind kind, std::string_view payload);
  void flush();
  bool has_output() const { return !output_.empty(); }

  // Takes in some of what has come. False: the peer is gone, only frames that came before are left.
  bool receive();
  std::optional<Frame> next(std::size_t largest = kLargestPayload) { return reader_.next(largest); }

 private:
  FileDescriptor socket_;
  FrameReader reader_;
  std::string output_;
  std::size_t sent_ = 0;  // of output_
};

}  // namespace lockstep::rendezvous

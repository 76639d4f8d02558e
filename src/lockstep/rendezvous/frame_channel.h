// Sends and receives frames over a non-blocking socket. No function waits.
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

  // Sends what the socket accepts now and keeps the rest for flush(). It does not report an error:
  // it ends the connection for both sides, and receive() reports that.
  void send(FrameKind kind, std::string_view payload);
  void flush();
  bool has_output() const { return !output_.empty(); }
  // The errno of the first send that failed and ended the connection; 0: none. The peer may be well
  // then, although receive() reports an end.
  int send_error() const { return send_error_; }

  // Reads some of the bytes that have arrived. False: the connection is closed; next() still
  // returns the frames that arrived before.
  bool receive();
  std::optional<Frame> next(std::size_t largest = kLargestPayload) { return reader_.next(largest); }

 private:
  FileDescriptor socket_;
  FrameReader reader_;
  std::string output_;
  std::size_t sent_ = 0;  // bytes of output_ that were sent
  int send_error_ = 0;
};

}  // namespace lockstep::rendezvous

#include "lockstep/rendezvous/frame_channel.h"

#include <cerrno>
#include <vector>

#include <sys/socket.h>

namespace lockstep::rendezvous {
namespace {

// The most that one call of receive() reads, so that a peer that sends much does not delay others.
constexpr std::size_t kReceiveBytes = 256 << 10;

bool may_try_later() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

}  // namespace

void FrameChannel::send(FrameKind kind, std::string_view payload) {
  output_ += encode_frame(kind, payload);
  flush();
}

void FrameChannel::flush() {
  while (sent_ < output_.size()) {
    const ssize_t n =
        ::send(socket_.get(), output_.data() + sent_, output_.size() - sent_, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && may_try_later()) return;
    if (n < 0) {
      // The connection is closed, or the kernel has no memory for it. Frames are lost, maybe only a
      // part of one. Without this, the peer would take the next frame for the missing part, or wait
      // for an answer until its time limit.
      if (send_error_ == 0) send_error_ = errno;
      ::shutdown(socket_.get(), SHUT_RDWR);
      break;
    }
    sent_ += static_cast<std::size_t>(n);
  }
  output_.clear();
  sent_ = 0;
}

bool FrameChannel::receive() {
  // One buffer per thread, because a server has many channels and reads from one at a time. It has
  // no content between calls.
  thread_local std::vector<char> chunk(kReceiveBytes);
  const ssize_t n = ::recv(socket_.get(), chunk.data(), chunk.size(), 0);
  if (n < 0) return may_try_later();
  reader_.append({chunk.data(), static_cast<std::size_t>(n)});
  return n > 0;
}

}  // namespace lockstep::rendezvous

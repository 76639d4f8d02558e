#include "lockstep/process/pmi.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include "lockstep/process/process.h"

namespace lockstep::process {

std::string pmi_run_id(int fd) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.pid <= 0) return "";
  const auto status = process_status(peer.pid);
  if (!status) return "";
  return fmt::format("pmi-{}-{}", peer.pid, status->start_time);
}

}  // namespace lockstep::process

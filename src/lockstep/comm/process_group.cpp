#include "lockstep/comm/process_group.h"

#include <csignal>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "lockstep/base/error.h"
#include "lockstep/comm/nccl.h"

namespace lockstep::comm {
namespace {

// Gloo writes to connections that the other end may have closed. The signal SIGPIPE then kills the
// process unless it ignores the signal, as Python does. While this object exists, the signal is
// blocked in this thread, and in the threads that it starts. The program's own handling of the
// signal does not change.
class BrokenPipeBlocked {
 public:
  BrokenPipeBlocked() {
    ::sigemptyset(&pipe_);
    ::sigaddset(&pipe_, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~BrokenPipeBlocked() {
    if (::sigismember(&before_, SIGPIPE) == 1) return;
    const timespec now{};
    while (::sigtimedwait(&pipe_, nullptr, &now) > 0) {
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  BrokenPipeBlocked(const BrokenPipeBlocked&) = delete;
  BrokenPipeBlocked& operator=(const BrokenPipeBlocked&) = delete;

 private:
  sigset_t pipe_{};
  sigset_t before_{};
};

c10::intrusive_ptr<ProcessGroup> make_gloo(const c10::intrusive_ptr<c10d::Store>& store,
                                           const GroupOptions& options) {
  const BrokenPipeBlocked blocked;
  auto settings = c10d::ProcessGroupGloo::Options::create();
  settings->timeout = options.timeout;
  settings->threads = 2;
  settings->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(options.address));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, options.rank, options.size, settings);
}

}  // namespace

std::vector<std::string> available_backends() {
  std::vector<std::string> backends{"gloo"};
  if (const PlaneFactory* const planes = nccl_planes()) backends.push_back(planes->name());
  return backends;
}

c10::intrusive_ptr<ProcessGroup> make_process_group(const c10::intrusive_ptr<c10d::Store>& store,
                                                    const GroupOptions& options) {
  if (options.backend == "gloo") return make_gloo(store, options);
  throw ConfigError("backend: expected gloo, the only process group between hosts, got '{}'",
                    options.backend);
}

}  // namespace lockstep::comm

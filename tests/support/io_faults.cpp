#include "tests/support/io_faults.h"

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <utility>

#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

namespace lockstep {
namespace {

// The plan in force. It is global, because functions of the C library have no other way to find it.
struct Current {
  std::mutex mutex;  // protects all of the following
  IoFaultPlan plan;
  std::vector<SeenCall> seen;
  std::optional<SeenCall> struck;
  std::optional<SeenCall> next_fails;  // after a torn call
};

Current& current() {
  static auto& made = *std::make_unique<Current>().release();  // threads may outlive main()
  return made;
}

// Read without the mutex by every call, so that calls outside of a plan cost nothing.
std::atomic<bool> in_force = false;

// The disk is not waited for: no test can see the difference, and it would take most of the time.
std::atomic<bool> without_sync = false;

struct WithoutSync {
  WithoutSync() { without_sync = true; }
  ~WithoutSync() { without_sync = false; }
};

std::string thread_name() {
  char name[16] = "";
  ::pthread_getname_np(::pthread_self(), name, sizeof name);
  return name;
}

std::string absolute(int folder, const char* path) {
  if (path == nullptr) return "";
  if (path[0] == '/') return path;
  char base[4096] = "";
  const std::string link =
      folder == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/" + std::to_string(folder);
  const ssize_t size = ::readlink(link.c_str(), base, sizeof base);
  return std::string(base, size > 0 ? static_cast<std::size_t>(size) : 0) + "/" + path;
}

std::string path_of(int fd) {
  char path[4096];
  const ssize_t size =
      ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path);
  return std::string(path, size > 0 ? static_cast<std::size_t>(size) : 0);
}

std::string name_of(const sockaddr* address, socklen_t size) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    const auto& v4 = *reinterpret_cast<const sockaddr_in*>(address);
    ::inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    return fmt::format("{}:{}", text, ntohs(v4.sin_port));
  }
  if (address->sa_family == AF_INET6) {
    const auto& v6 = *reinterpret_cast<const sockaddr_in6*>(address);
    ::inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
    return fmt::format("[{}]:{}", text, ntohs(v6.sin6_port));
  }
  if (address->sa_family == AF_UNIX && size > offsetof(sockaddr_un, sun_path) + 1) {
    const auto& local = *reinterpret_cast<const sockaddr_un*>(address);
    return "@" + std::string(local.sun_path + 1, size - offsetof(sockaddr_un, sun_path) - 1);
  }
  return "";
}

// Both ends, with a space between.
std::string ends_of(int fd) {
  sockaddr_storage address{};
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  std::string ends;
  socklen_t size = sizeof address;
  if (::getsockname(fd, any, &size) == 0) ends = name_of(any, size);
  size = sizeof address;
  if (::getpeername(fd, any, &size) == 0) ends += " " + name_of(any, size);
  return ends;
}

bool is_socket(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode);
}

bool has_end(const std::string& ends, const std::string& name) {
  return (" " + ends + " ").find(" " + name + " ") != std::string::npos;
}

// Counts the call and returns the fault that it gets.
IoFault count(Current& now, IoCall call, std::string thing) {
  const IoFaultPlan& plan = now.plan;
  if (plan.thread && *plan.thread != std::this_thread::get_id()) return {};
  if (const auto it = plan.always.find(call); it != plan.always.end()) return {it->second};
  if (!plan.calls.empty() && !plan.calls.contains(call)) return {};
  SeenCall made{.call = call, .thing = std::move(thing), .thread = thread_name()};
  now.seen.push_back(made);
  if (now.next_fails && now.next_fails->call == call && now.next_fails->thing == made.thing) {
    now.next_fails.reset();
    return {.error = plan.fault.error};
  }
  if (plan.nth != static_cast<std::int64_t>(now.seen.size())) return {};
  now.struck = made;
  if (!plan.fault.torn) return plan.fault;
  if (plan.fault.error != 0) now.next_fails = made;
  return {.torn = true};
}

IoFault on_path(IoCall call, const std::vector<std::string>& paths) {
  Current& now = current();
  const std::lock_guard lock(now.mutex);
  if (now.plan.files.empty()) return {};
  for (const std::string& path : paths) {
    if (path.starts_with(now.plan.files)) return count(now, call, path);
  }
  return {};
}

bool lacks_unnamed_files() {
  const std::lock_guard lock(current().mutex);
  return current().plan.no_unnamed_files;
}

bool is_unnamed(int flags) {
  return (flags & O_TMPFILE) == O_TMPFILE;
}

IoFault on_socket(IoCall call, const std::string& ends) {
  Current& now = current();
  const std::lock_guard lock(now.mutex);
  if (now.plan.sockets.empty()) return {};
  if (call != IoCall::kSocket && !has_end(ends, now.plan.sockets)) return {};
  return count(now, call, ends);
}

struct CallKinds {
  IoCall of_file;
  IoCall of_socket;
};

IoFault on_descriptor(const CallKinds& kinds, int fd) {
  if (is_socket(fd)) return on_socket(kinds.of_socket, ends_of(fd));
  return on_path(kinds.of_file, {path_of(fd)});
}

constexpr CallKinds kReads = {IoCall::kRead, IoCall::kReceive};
constexpr CallKinds kWrites = {IoCall::kWrite, IoCall::kSend};

// The part that a torn call transfers. A reader offers more room than there are bytes, so it gets
// one.
std::size_t part_to_write(std::size_t size) {
  return std::max<std::size_t>(size / 2, std::min<std::size_t>(size, 1));
}
std::size_t part_to_read(std::size_t size) {
  return std::min<std::size_t>(size, 1);
}

void* find_real(std::atomic<void*>& found, const char* name) {
  void* function = found.load(std::memory_order_relaxed);
  if (function == nullptr) {
    function = ::dlsym(RTLD_NEXT, name);
    found.store(function, std::memory_order_relaxed);
  }
  return function;
}

// The C library's function of the same name. It is remembered without a guard, because a sanitizer
// may call these functions before it can handle guards.
#define LOCKSTEP_REAL(function)                                                            \
  ([] {                                                                                    \
    static constinit std::atomic<void*> found = nullptr;                                   \
    return reinterpret_cast<decltype(&::function)>(lockstep::find_real(found, #function)); \
  }())

template <typename Result = int>
Result failed(int error) {
  errno = error;
  return Result(-1);
}

}  // namespace

std::string to_string(IoCall call) {
  switch (call) {
    case IoCall::kOpen:
      return "open";
    case IoCall::kRead:
      return "read";
    case IoCall::kWrite:
      return "write";
    case IoCall::kSync:
      return "sync";
    case IoCall::kRename:
      return "rename";
    case IoCall::kLink:
      return "link";
    case IoCall::kTruncate:
      return "truncate";
    case IoCall::kMakeFolder:
      return "mkdir";
    case IoCall::kRemove:
      return "remove";
    case IoCall::kAllocate:
      return "fallocate";
    case IoCall::kMemoryFile:
      return "memfd_create";
    case IoCall::kMap:
      return "mmap";
    case IoCall::kSocket:
      return "socket";
    case IoCall::kListen:
      return "bind or listen";
    case IoCall::kConnect:
      return "connect";
    case IoCall::kAccept:
      return "accept";
    case IoCall::kSend:
      return "send";
    case IoCall::kReceive:
      return "receive";
  }
  return "?";
}

std::string to_string(const IoFault& fault) {
  if (!fault.torn) return ::strerrorname_np(fault.error);
  return fault.error == 0 ? "torn" : fmt::format("torn, then {}", ::strerrorname_np(fault.error));
}

IoFaults::IoFaults(IoFaultPlan plan) {
  Current& now = current();
  {
    const std::lock_guard lock(now.mutex);
    now.plan = std::move(plan);
    now.seen.clear();
    now.struck.reset();
    now.next_fails.reset();
  }
  in_force = true;
}

IoFaults::~IoFaults() {
  in_force = false;
  const std::lock_guard lock(current().mutex);
  current().plan = {};
}

std::vector<SeenCall> IoFaults::seen() const {
  const std::lock_guard lock(current().mutex);
  return current().seen;
}

std::optional<SeenCall> IoFaults::struck() const {
  const std::lock_guard lock(current().mutex);
  return current().struck;
}

std::vector<IoFault> faults_of(IoCall call) {
  const IoFault torn{.torn = true};
  switch (call) {
    case IoCall::kOpen:
      return {{EMFILE}, {EIO}};
    case IoCall::kRead:
      return {{EIO}, {EINTR}, torn};
    case IoCall::kWrite:
      return {{ENOSPC}, {EIO}, {EINTR}, torn, {.error = ENOSPC, .torn = true}};
    case IoCall::kSync:
      return {{EIO}, {EINTR}};
    case IoCall::kRename:
    case IoCall::kLink:
    case IoCall::kMakeFolder:
      return {{ENOSPC}, {EIO}};
    case IoCall::kTruncate:
      return {{EIO}, {EINTR}};
    case IoCall::kRemove:
      return {{EIO}};
    case IoCall::kAllocate:
      return {{ENOSPC}, {EINTR}};
    case IoCall::kMemoryFile:
      return {{EMFILE}, {ENOMEM}};
    case IoCall::kMap:
      return {{ENOMEM}};
    case IoCall::kSocket:
      return {{EMFILE}, {ENOBUFS}};
    case IoCall::kListen:
      return {{EADDRINUSE}};
    case IoCall::kConnect:
      return {{ECONNREFUSED}, {ETIMEDOUT}, {EINTR}};
    case IoCall::kAccept:
      return {{EMFILE}, {ECONNABORTED}, {EINTR}};
    case IoCall::kSend:
      return {{ECONNRESET}, {ENOBUFS}, {EAGAIN}, {EINTR}, torn, {.error = EPIPE, .torn = true}};
    case IoCall::kReceive:
      return {{ECONNRESET}, {EAGAIN}, {EINTR}, torn, {.error = ETIMEDOUT, .torn = true}};
  }
  return {};
}

namespace {

// Returns the calls that the plan concerned.
std::vector<SeenCall> run_once(const FaultSweep& sweep, const IoFaultPlan& plan, FaultedRun& made) {
  sweep.prepare();
  const IoFaults faults(plan);
  try {
    sweep.operation();
  } catch (const std::exception& error) {
    made.error = error.what();
    if (made.error.empty()) made.error = "an exception without a message";
  }
  if (const auto struck = faults.struck()) {
    made.call = *struck;
    made.struck = true;
  }
  return faults.seen();
}

}  // namespace

std::int64_t fail_each_call(const FaultSweep& sweep) {
  const WithoutSync fast;
  FaultedRun undisturbed;
  // By kind, because with several threads the order of calls of different kinds may change.
  std::map<IoCall, std::vector<SeenCall>> calls;
  for (const SeenCall& call : run_once(sweep, sweep.plan, undisturbed)) {
    calls[call.call].push_back(call);
  }
  EXPECT_EQ(undisturbed.error, "") << "without any fault";
  EXPECT_FALSE(calls.empty()) << "the plan concerns no call";
  std::int64_t runs = 0;
  for (const auto& [kind, of_kind] : calls) {
    for (std::size_t i = 0; i < of_kind.size(); ++i) {
      for (const IoFault& fault : sweep.faults(kind)) {
        IoFaultPlan plan = sweep.plan;
        plan.calls = {kind};
        plan.nth = static_cast<std::int64_t>(i) + 1;
        plan.fault = fault;
        FaultedRun made{.call = of_kind[i], .fault = fault};
        run_once(sweep, plan, made);
        SCOPED_TRACE(fmt::format("{} {} of {}, of {} by thread '{}': {}", to_string(kind), i + 1,
                                 of_kind.size(), made.call.thing, made.call.thread,
                                 to_string(fault)));
        sweep.check(made);
        ++runs;
      }
    }
  }
  return runs;
}

FolderInMemory::FolderInMemory() {
  const bool in_memory = ::access("/dev/shm", W_OK | X_OK) == 0;
  std::string name = (in_memory ? "/dev/shm" : std::filesystem::temp_directory_path()) /
                     std::filesystem::path("lockstep-faults-XXXXXX");
  if (::mkdtemp(name.data()) == nullptr)
    throw std::system_error(errno, std::generic_category(), name);
  path_ = name;
}

FolderInMemory::~FolderInMemory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

namespace {

std::int64_t entries_of(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder),
                       std::filesystem::directory_iterator());
}

}  // namespace

// The descriptor with which the folder itself is read is counted each time.
std::int64_t open_descriptors() {
  return entries_of("/proc/self/fd");
}

std::int64_t running_threads() {
  return entries_of("/proc/self/task");
}

}  // namespace lockstep

// The functions of the C library. Each asks the plan first.
using lockstep::CallKinds;
using lockstep::IoCall;
using lockstep::IoFault;

extern "C" {

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const bool creates = (flags & O_CREAT) != 0 || lockstep::is_unnamed(flags);
  const mode_t mode = creates ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  if (lockstep::in_force) {
    if (lockstep::is_unnamed(flags) && lockstep::lacks_unnamed_files()) {
      return lockstep::failed(EOPNOTSUPP);
    }
    const IoFault fault = lockstep::on_path(IoCall::kOpen, {lockstep::absolute(AT_FDCWD, path)});
    if (fault.error != 0) return lockstep::failed(fault.error);
  }
  return LOCKSTEP_REAL(open)(path, flags, mode);
}

int openat(int folder, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const bool creates = (flags & O_CREAT) != 0 || lockstep::is_unnamed(flags);
  const mode_t mode = creates ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  if (lockstep::in_force) {
    if (lockstep::is_unnamed(flags) && lockstep::lacks_unnamed_files()) {
      return lockstep::failed(EOPNOTSUPP);
    }
    const IoFault fault = lockstep::on_path(IoCall::kOpen, {lockstep::absolute(folder, path)});
    if (fault.error != 0) return lockstep::failed(fault.error);
  }
  return LOCKSTEP_REAL(openat)(folder, path, flags, mode);
}

ssize_t read(int fd, void* bytes, size_t size) {
  if (lockstep::in_force) {
    const IoFault fault = lockstep::on_descriptor(lockstep::kReads, fd);
    if (fault.error != 0) return lockstep::failed<ssize_t>(fault.error);
    if (fault.torn) size = lockstep::part_to_read(size);
  }
  return LOCKSTEP_REAL(read)(fd, bytes, size);
}

ssize_t pread(int fd, void* bytes, size_t size, off_t at) {
  if (lockstep::in_force) {
    const IoFault fault = lockstep::on_descriptor(lockstep::kReads, fd);
    if (fault.error != 0) return lockstep::failed<ssize_t>(fault.error);
    if (fault.torn) size = lockstep::part_to_read(size);
  }
  return LOCKSTEP_REAL(pread)(fd, bytes, size, at);
}

ssize_t write(int fd, const void* bytes, size_t size) {
  if (lockstep::in_force) {
    const IoFault fault = lockstep::on_descriptor(lockstep::kWrites, fd);
    if (fault.error != 0) return lockstep::failed<ssize_t>(fault.error);
    if (fault.torn) size = lockstep::part_to_write(size);
  }
  return LOCKSTEP_REAL(write)(fd, bytes, size);
}

ssize_t pwrite(int fd, const void* bytes, size_t size, off_t at) {
  if (lockstep::in_force) {
    const IoFault fault = lockstep::on_descriptor(lockstep::kWrites, fd);
    if (fault.error != 0) return lockstep::failed<ssize_t>(fault.error);
    if (fault.torn) size = lockstep::part_to_write(size);
  }
  return LOCKSTEP_REAL(pwrite)(fd, bytes, size, at);
}

ssize_t writev(int fd, const iovec* parts, int count) {
  if (lockstep::in_force && count > 0) {
    const IoFault fault = lockstep::on_descriptor(lockstep::kWrites, fd);
    if (fault.error != 0) return lockstep::failed<ssize_t>(fault.error);
    if (fault.torn) {
      iovec part = parts[0];
      part.iov_len = lockstep::part_to_write(part.iov_len);
      return LOCKSTEP_REAL(writev)(fd, &part, 1);
    }
  }
  return LOCKSTEP_REAL(writev)(fd, parts, count);
}

int fsync(int fd) {
  if (lockstep::in_force) {
    const IoFault fault = lockstep::on_path(IoCall::kSync, {lockstep::path_of(fd)});
    if (fault.error != 0) return lockstep::failed(fault.error);
  }
  return lockstep::without_sync ? 0 : LOCKSTEP_REAL(fsync)(fd);
}

int fdatasync(int fd) {
  if (lockstep::in_force) {
    const IoFault fault = lockstep::on_path(IoCall::kSync, {lockstep::path_of(fd)});
    if (fault.error != 0) return lockstep::failed(fault.error);
  }
  return lockstep::without_sync ? 0 : LOCKSTEP_REAL(fdatasync)(fd);
}

int rename(const char* from, const char* to) noexcept {
  if (lockstep::in_force) {
    const IoFault fault = lockstep::on_path(
        IoCall::kRename, {lockstep::absolute(AT_FDCWD, to), lockstep::absolute(AT_FDCWD, from)});
    if (fault.error != 0) return lockstep::failed(fault.error);
  }
  return LOCKSTEP_REAL(rename)(from, to);
}

int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  if (lockstep::in_force) {
    const IoFault fault = lockstep::on_path(
        IoCall::kRename,
        {lockstep::absolute(to_folder, to), lockstep::absolute(from_folder, from)});
    if (fault.error != 0) return lockstep::failed(fault.error);
  }
  return LOCKSTEP_REAL(renameat)(from_folder, from, to_folder, to);
}

int link(const char* from, const char* to) noexcept {
  if (lockstep::in_force) {
    const IoFault fault = lockstep::on_path(IoCall::kLink, {lockstep::absolute(AT_FDCWD, to)});
    if (fault.error != 0) return lockstep::failed(fault.error);
  }
  return LOCKSTEP_REAL(link)(from, to);
}

int linkat(int from_folder, const char* from, int to_folder, const char* to, int flags) noexcept {
  if (lockstep::in_force) {
    const IoFault fault = lockstep::on_path(IoCall::kLink, {lockstep::absolute(to_folder, to)});
    if (fault.error != 0) return lockstep::failed(fault.error);
  }
  return LOCKSTEP_REAL(linkat)(from_folder, from, to_folder, to, flags);
}

int ftruncate(int fd, off_t size) noexcept {
  if (lockstep::in_force) {
    const IoFault fault = lockstep::on_path(IoCall::kTruncate, {lockstep::path_of(fd)});
    if (fault.error != 0) return lockstep::failed(fault.error);
  }
  return LOCKSTEP_REAL(ftruncate)(fd, size);
}

int mkdir(const char* path, mode_t mode) noexcept {
  if (lockstep::in_force) {
    const IoFault fault =
        lockstep::on_path(IoCall::kMakeFolder, {lockstep::absolute(AT_FDCWD, path)});
    if (fault.error != 0) return lockstep::failed(fault.error);
  }
  return LOCKSTEP_REAL(mkdir)(path, mode);
}

int remove(const char* path) noexcept {
  if (lockstep::in_force) {
    const IoFault fault = lockstep::on_path(IoCall::kRemove, {lockstep::absolute(AT_FDCWD, path)});
    if (fault.error != 0) return lockstep::failed(fault.error);
  }
  return LOCKSTEP_REAL(remove)(path);
}

int fallocate(int fd, int mode, off_t offset, off_t size) {
  if (lockstep::in_force) {
    const IoFault fault = lockstep::on_path(IoCall::kAllocate, {lockstep::path_of(fd)});
    if (fault.error != 0) return lockstep::failed(fault.error);
  }
  return LOCKSTEP_REAL(fallocate)(fd, mode, offset, size);
}

int memfd_create(const char* name, unsigned flags) noexcept {
  if (lockstep::in_force) {
    const IoFault fault = lockstep::on_path(IoCall::kMemoryFile, {"/memfd:" + std::string(name)});
    if (fault.error != 0) return lockstep::failed(fault.error);
  }
  return LOCKSTEP_REAL(memfd_create)(name, flags);
}

void* mmap(void* address, size_t size, int protection, int flags, int fd, off_t offset) noexcept {
  if (lockstep::in_force && fd >= 0) {
    const IoFault fault = lockstep::on_path(IoCall::kMap, {lockstep::path_of(fd)});
    if (fault.error != 0) {
      errno = fault.error;
      return MAP_FAILED;
    }
  }
  return LOCKSTEP_REAL(mmap)(address, size, protection, flags, fd, offset);
}

int socket(int domain, int type, int protocol) noexcept {
  if (lockstep::in_force && (domain == AF_INET || domain == AF_INET6 || domain == AF_UNIX)) {
    const IoFault fault = lockstep::on_socket(IoCall::kSocket, "");
    if (fault.error != 0) return lockstep::failed(fault.error);
  }
  return LOCKSTEP_REAL(socket)(domain, type, protocol);
}

int bind(int fd, const sockaddr* address, socklen_t size) noexcept {
  if (lockstep::in_force) {
    const IoFault fault = lockstep::on_socket(IoCall::kListen, lockstep::name_of(address, size));
    if (fault.error != 0) return lockstep::failed(fault.error);
  }
  return LOCKSTEP_REAL(bind)(fd, address, size);
}

int listen(int fd, int backlog) noexcept {
  if (lockstep::in_force) {
    const IoFault fault = lockstep::on_socket(IoCall::kListen, lockstep::ends_of(fd));
    if (fault.error != 0) return lockstep::failed(fault.error);
  }
  return LOCKSTEP_REAL(listen)(fd, backlog);
}

int connect(int fd, const sockaddr* address, socklen_t size) {
  IoFault fault;
  if (lockstep::in_force) {
    fault = lockstep::on_socket(IoCall::kConnect, lockstep::name_of(address, size));
    if (fault.error != 0 && fault.error != EINTR) return lockstep::failed(fault.error);
  }
  const int result = LOCKSTEP_REAL(connect)(fd, address, size);
  // A connection whose connect() was interrupted is still made.
  return fault.error == EINTR ? lockstep::failed(EINTR) : result;
}

int accept4(int fd, sockaddr* address, socklen_t* size, int flags) {
  if (lockstep::in_force) {
    const IoFault fault = lockstep::on_socket(IoCall::kAccept, lockstep::ends_of(fd));
    if (fault.error != 0) return lockstep::failed(fault.error);
  }
  return LOCKSTEP_REAL(accept4)(fd, address, size, flags);
}

ssize_t send(int fd, const void* bytes, size_t size, int flags) {
  if (lockstep::in_force) {
    const IoFault fault = lockstep::on_socket(IoCall::kSend, lockstep::ends_of(fd));
    if (fault.error != 0) return lockstep::failed<ssize_t>(fault.error);
    if (fault.torn) size = lockstep::part_to_write(size);
  }
  return LOCKSTEP_REAL(send)(fd, bytes, size, flags);
}

ssize_t recv(int fd, void* bytes, size_t size, int flags) {
  if (lockstep::in_force) {
    const IoFault fault = lockstep::on_socket(IoCall::kReceive, lockstep::ends_of(fd));
    if (fault.error != 0) return lockstep::failed<ssize_t>(fault.error);
    if (fault.torn) size = lockstep::part_to_read(size);
  }
  return LOCKSTEP_REAL(recv)(fd, bytes, size, flags);
}

}  // extern "C"

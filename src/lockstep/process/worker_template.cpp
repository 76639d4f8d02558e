#include "lockstep/process/worker_template.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/process/interrupt.h"
#include "lockstep/process/process.h"
#include "lockstep/process/worker_process.h"

namespace lockstep::process {

// Memory that the template and its maker share.
struct TemplatePage {
  // The kernel writes the pid of a new worker here before the worker runs. So its parent knows it
  // also if the template is killed before it can answer.
  std::atomic<pid_t> forked;
  std::atomic<int> trial;  // 0 until the trial is over; then 1 if it was passed, else 2
};

// A request or an answer.
struct TemplateMessage {
  std::uint64_t number = 0;  // of the request; an answer has the same
  std::int32_t rank = 0;     // 0: a trial worker
  std::int32_t first_rank = 0;
  std::int64_t timeout = 0;      // in milliseconds
  std::int32_t descriptors = 0;  // that come with the request: of the group's memory, of the output
  pid_t pid = 0;                 // answer: of the worker, or
  std::int32_t error = 0;        // answer: the errno
};

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A file that is open for reading only, and the position in it.
struct ReadFile {
  int descriptor = -1;
  int flags = 0;
  int descriptor_flags = 0;
  off_t position = 0;
};

std::vector<ReadFile> open_files() {
  std::vector<ReadFile> files;
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", failed)) {
    const std::string name = entry.path().filename().string();
    ReadFile file;
    std::from_chars(name.data(), name.data() + name.size(), file.descriptor);
    struct stat status {};
    file.flags = ::fcntl(file.descriptor, F_GETFL);
    file.descriptor_flags = ::fcntl(file.descriptor, F_GETFD);
    if (file.flags < 0 || ::fstat(file.descriptor, &status) != 0 || !S_ISREG(status.st_mode) ||
        (file.flags & (O_ACCMODE | O_PATH)) != O_RDONLY) {
      continue;
    }
    file.position = ::lseek(file.descriptor, 0, SEEK_CUR);
    if (file.position >= 0) files.push_back(file);
  }
  return files;
}

// Processes that inherit a descriptor share its position. This gives the calling process its own.
// A file that cannot be opened again stays shared.
void open_again(const ReadFile& file) {
  char path[40];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", file.descriptor);
  const FileDescriptor own(::open(path, file.flags | O_CLOEXEC));
  if (!own || ::lseek(own.get(), file.position, SEEK_SET) != file.position) return;
  ::dup3(own.get(), file.descriptor, (file.descriptor_flags & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0);
}

constexpr int kIgnored[] = {SIGINT, SIGTERM, SIGHUP};

// The signal handlers of the program. The template ignores these signals; a worker has the
// program's handlers again. All signals are blocked from the constructor on, so that none arrives
// in between.
class ProgramSignals {
 public:
  ProgramSignals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &mask_);
    for (std::size_t i = 0; i < std::size(kIgnored); ++i) {
      ::sigaction(kIgnored[i], nullptr, &actions_[i]);
    }
  }

  // They stay blocked, so that a worker can set its handlers before one of them arrives.
  void ignore() const {
    sigset_t blocked = mask_;
    for (const int signal : kIgnored) {
      std::signal(signal, SIG_IGN);
      ::sigaddset(&blocked, signal);
    }
    ::pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
  }

  void restore_handlers() const {
    for (std::size_t i = 0; i < std::size(kIgnored); ++i) {
      ::sigaction(kIgnored[i], &actions_[i], nullptr);
    }
  }

  void unblock() const { ::pthread_sigmask(SIG_SETMASK, &mask_, nullptr); }

 private:
  sigset_t mask_{};
  struct sigaction actions_[std::size(kIgnored)]{};
};

// As fork(), but the child is a child of this process's parent, and its pid is also written to
// `pid`. glibc's fork() has no such option. What glibc does in addition after a fork is to clean up
// after threads that are not in the child; this process has none. glibc also stores the id of the
// child's first thread, which is wrong here: the worker does its work in a new thread.
pid_t fork_sibling(std::atomic<pid_t>& pid) {
  static_assert(sizeof pid == sizeof(pid_t));
  return static_cast<pid_t>(::syscall(SYS_clone, CLONE_PARENT | CLONE_PARENT_SETTID | SIGCHLD,
                                      nullptr, &pid, nullptr, nullptr));
}

constexpr std::size_t kMostDescriptors = 2;

// Room for the descriptors of a message.
union Control {
  cmsghdr header;
  char bytes[CMSG_SPACE(kMostDescriptors * sizeof(int))];
};

// Sends the message with up to two descriptors. False if the other process is gone.
template <typename T>
bool send_message(const FileDescriptor& socket, const T& message, std::span<const int> fds = {}) {
  iovec content{.iov_base = const_cast<T*>(&message), .iov_len = sizeof message};
  msghdr header{};
  header.msg_iov = &content;
  header.msg_iovlen = 1;
  Control control{};
  if (!fds.empty()) {
    header.msg_control = &control;
    header.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
  }
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  return sent == sizeof message;
}

// Waits for a message and its descriptors. False if the other process is gone.
template <typename T>
bool receive_message(const FileDescriptor& socket, T& message,
                     std::span<FileDescriptor> descriptors = {}) {
  iovec content{.iov_base = &message, .iov_len = sizeof message};
  msghdr header{};
  Control control{};
  header.msg_iov = &content;
  header.msg_iovlen = 1;
  header.msg_control = &control;
  header.msg_controllen = sizeof control;
  ssize_t received = 0;
  do {
    received = ::recvmsg(socket.get(), &header, MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  const cmsghdr* const rights = CMSG_FIRSTHDR(&header);
  if (received > 0 && rights != nullptr && rights->cmsg_type == SCM_RIGHTS) {
    const std::size_t count = (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(rights) + i * sizeof descriptor, sizeof descriptor);
      FileDescriptor owner(descriptor);
      if (i < descriptors.size()) descriptors[i] = std::move(owner);
    }
  }
  return received == sizeof message;
}

// What the template's process has. It uses no memory of malloc itself: after _Fork(), malloc's
// locks may be held by threads that do not exist in this process.
struct TemplateProcess {
  FileDescriptor socket;
  TemplatePage& page;
  const std::function<bool()>& probe;
  const std::function<void(HostGroup&)>& work;
  const std::vector<ReadFile>& files;
  const ProgramSignals& signals;
  pid_t caller;
};

// The trial worker's process.
[[noreturn]] void run_trial(const std::function<bool()>& probe, std::atomic<int>& result) noexcept {
  bool works = false;
  try {
    start_thread([&] {
      try {
        works = probe();
      } catch (...) {
        // Workers that are forked without the template report what the probe throws.
      }
    }).join();
  } catch (...) {
  }
  flush_output();
  result = works ? 1 : 2;
  ::_exit(0);
}

// A new process becomes the worker that the message asks for.
[[noreturn]] void become_worker(TemplateProcess& own, const TemplateMessage& message,
                                FileDescriptor memory, FileDescriptor output) noexcept {
  die_with_parent(own.caller);
  own.socket = FileDescriptor();
  own.signals.restore_handlers();
  InterruptGuard::catch_for_good();
  own.signals.unblock();
  if (message.rank == 0) run_trial(own.probe, own.page.trial);
  try {
    for (const ReadFile& file : own.files) open_again(file);
    const auto shared = std::make_shared<HostGroupMemory>(SharedMemory::adopt(std::move(memory)));
    HostGroupOptions options{.rank = message.rank, .timeout = milliseconds(message.timeout)};
    options.names.resize(shared->size());
    std::iota(options.names.begin(), options.names.end(), message.first_rank);
    HostGroup host_group(shared, options);
    const std::function<bool()> no_probe;  // the trial was one
    run_worker_process(
        {.host_group = host_group, .probe = no_probe, .work = own.work, .caller = own.caller},
        std::move(output));
  } catch (const std::exception& error) {
    ::dprintf(STDERR_FILENO, "lockstep: a worker cannot start: %s\n", error.what());
  }
  ::_exit(1);
}

[[noreturn]] void serve(TemplateProcess own) noexcept {
  for (;;) {
    TemplateMessage message;
    FileDescriptor descriptors[kMostDescriptors];
    if (!receive_message(own.socket, message, descriptors)) ::_exit(0);
    const auto received = std::ranges::count_if(descriptors, &FileDescriptor::operator bool);
    // The kernel drops descriptors if this process has too many.
    errno = EMFILE;
    message.pid = received == message.descriptors ? fork_sibling(own.page.forked) : -1;
    if (message.pid == 0) {
      become_worker(own, message, std::move(descriptors[0]), std::move(descriptors[1]));
    }
    message.error = errno;
    if (!send_message(own.socket, message)) ::_exit(0);
  }
}

}  // namespace

TemplatePage& WorkerTemplate::page() const {
  return *reinterpret_cast<TemplatePage*>(memory_.data());
}

WorkerTemplate::WorkerTemplate(const WorkerTemplateOptions& options,
                               const std::function<void(HostGroup&)>& work)
    : request_timeout_(options.request_timeout), memory_(sizeof(TemplatePage)) {
  memory_.close_handle();
  // fork() is tried first, and then _Fork(), for the reason that ForkedWorkers has. After _Fork()
  // the template may have a lock of malloc that a thread of this process held in that moment. Then
  // its workers hang, and a second template is likely to have none.
  start(options.probe, work, /*bare=*/false);
  if (!options.probe || passes_trial(kStartTimeout)) return;
  constexpr milliseconds kBareLimit(5000);
  for (int i = 0; i < 2; ++i) {
    start(options.probe, work, /*bare=*/true);
    if (passes_trial(kBareLimit)) return;
  }
  give_up();
}

WorkerTemplate::~WorkerTemplate() = default;

void WorkerTemplate::start(const std::function<bool()>& probe,
                           const std::function<void(HostGroup&)>& work, bool bare) {
  give_up();
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return;
  socket_ = FileDescriptor(ends[0]);
  FileDescriptor other(ends[1]);
  const std::vector<ReadFile> files = open_files();
  const pid_t caller = ::getpid();
  flush_output();
  const ProgramSignals signals;
  const pid_t pid = fork_process(bare);
  if (pid != 0) {
    signals.unblock();
    if (pid > 0) process_ = ChildProcess(pid);
    return;
  }
  die_with_parent(caller);
  signals.ignore();
  socket_ = FileDescriptor();
  set_process_name("lockstep-template");
  serve({.socket = std::move(other),
         .page = page(),
         .probe = probe,
         .work = work,
         .files = files,
         .signals = signals,
         .caller = caller});
}

bool WorkerTemplate::is_alive() {
  if (process_ && process_.has_ended()) give_up();
  return static_cast<bool>(process_);
}

bool WorkerTemplate::passes_trial(milliseconds limit) {
  page().trial = 0;
  const pid_t pid = request({}, {});
  if (pid < 0) return false;
  const ChildProcess trial(pid);
  const auto start = Clock::now();
  while (page().trial == 0 && !trial.has_ended() && Clock::now() - start < limit) {
    pollfd end{.fd = trial.ended_fd(), .events = POLLIN, .revents = 0};
    ::poll(&end, 1, static_cast<int>(ChildProcess::kPollInterval.count()));
  }
  return page().trial == 1;
}

pid_t WorkerTemplate::fork_worker(const WorkerRequest& worker) {
  const int descriptors[] = {worker.memory.descriptor().get(), worker.output.get()};
  return request(
      {.rank = worker.rank, .first_rank = worker.first_rank, .timeout = worker.timeout.count()},
      std::span(descriptors).first(worker.output ? 2 : 1));
}

pid_t WorkerTemplate::request(TemplateMessage message, std::span<const int> descriptors) {
  message.number = ++requests_;
  message.descriptors = static_cast<std::int32_t>(descriptors.size());
  page().forked = 0;
  if (is_alive()) {
    // A template that was stopped can still serve.
    const auto status = process_status(process_.pid());
    if (status && status->state == 'T') process_.send(SIGCONT);
    if (send_message(socket_, message, descriptors)) {
      const pid_t pid = answer(message.number);
      if (pid > 0) page().forked = 0;  // the caller has it
      if (pid > 0 || errno == EAGAIN || errno == ENOMEM || errno == EMFILE) return pid;
    }
  }
  give_up();
  errno = ESRCH;
  return -1;
}

pid_t WorkerTemplate::answer(std::uint64_t number) {
  constexpr milliseconds kCheckInterval(50);
  std::chrono::nanoseconds waited{0};
  while (waited < request_timeout_) {
    const auto start = Clock::now();
    pollfd polls[] = {{.fd = socket_.get(), .events = POLLIN, .revents = 0},
                      {.fd = process_.ended_fd(), .events = POLLIN, .revents = 0}};
    ::poll(polls, std::size(polls), static_cast<int>(kCheckInterval.count()));
    if (polls[0].revents != 0) {
      TemplateMessage message;
      if (!receive_message(socket_, message) || message.number != number) break;
      errno = message.error;
      return message.pid;
    }
    if (process_.has_ended()) break;
    // Each turn counts at most two intervals: this process may have been stopped (Ctrl-Z).
    waited += std::min<std::chrono::nanoseconds>(Clock::now() - start, 2 * kCheckInterval);
  }
  errno = ESRCH;
  return -1;
}

void WorkerTemplate::give_up() {
  process_ = ChildProcess();  // it is killed and reaped
  socket_ = FileDescriptor();
  // A worker whose pid was not answered.
  if (const pid_t unknown = page().forked.exchange(0); unknown > 0) {
    const ChildProcess killed_and_reaped(unknown);
  }
}

}  // namespace lockstep::process

#include "tests/chaos/sandbox.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "tests/chaos/marked_processes.h"

namespace lockstep::chaos {
namespace fs = std::filesystem;
namespace {

constexpr char kDiskSize[] = "size=48m";

FileDescriptor open_for_output(const fs::path& path) {
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!file) throw Error("{}: cannot open: {}", path.string(), std::strerror(errno));
  return file;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

// The environment of this process with other or more variables. The added ones come last: a process
// that writes its name over its arguments damages the first ones, if any.
std::vector<std::string> environment_with(const std::map<std::string, std::string>& variables) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!variables.contains(text.substr(0, text.find('=')))) all.push_back(text);
  }
  for (const auto& [name, value] : variables) all.push_back(name + "=" + value);
  return all;
}

// Runs a command of a few milliseconds. Throws Error with what it printed.
void run_command(const std::vector<std::string>& command, int network) {
  const TemporaryDirectory folder;
  auto child = start_program({.command = command, .error = folder / "error", .network = network});
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!child.has_ended()) {
    if (std::chrono::steady_clock::now() > end) {
      throw Error("{}: did not end within 10 s", join(command, " "));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const auto ended = child.reap();
  if (ended.ok()) return;
  throw Error("{}: {}: {}", join(command, " "), to_string(ended), read_file(folder / "error"));
}

// While it exists, this thread is in another network namespace.
class NetworkScope {
 public:
  explicit NetworkScope(int network)
      : before_(network < 0 ? -1 : ::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)) {
    if (network >= 0 && ::setns(network, CLONE_NEWNET) != 0) {
      throw Error("cannot enter a network namespace: {}", std::strerror(errno));
    }
  }
  ~NetworkScope() {
    if (before_) ::setns(before_.get(), CLONE_NEWNET);
  }
  NetworkScope(const NetworkScope&) = delete;
  NetworkScope& operator=(const NetworkScope&) = delete;

 private:
  FileDescriptor before_;
};

FileDescriptor make_network() {
  const FileDescriptor before(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  if (!before || ::unshare(CLONE_NEWNET) != 0) {
    throw Error("cannot make a network namespace: {}", std::strerror(errno));
  }
  FileDescriptor made(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  if (::setns(before.get(), CLONE_NEWNET) != 0 || !made) {
    throw Error("cannot leave a network namespace: {}", std::strerror(errno));
  }
  return made;
}

}  // namespace

process::ChildProcess start_program(const StartOptions& options) {
  std::vector<std::string> words = options.command;
  std::vector<std::string> variables = environment_with(options.variables);
  const auto command = pointers(words);
  const auto environment = pointers(variables);
  const FileDescriptor input(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const FileDescriptor output = open_for_output(options.output);
  const FileDescriptor error = open_for_output(options.error);
  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (const int core : options.cores) CPU_SET(static_cast<std::size_t>(core), &cores);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) throw Error("{}: cannot fork: {}", words.at(0), std::strerror(errno));
  if (pid == 0) {
    ::setsid();
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGCHLD}) {
      ::signal(signal, SIG_DFL);
    }
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    const rlimit no_core{.rlim_cur = 0, .rlim_max = 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    if (!options.cores.empty()) ::sched_setaffinity(0, sizeof cores, &cores);
    if (options.network >= 0 && ::setns(options.network, CLONE_NEWNET) != 0) ::_exit(126);
    ::dup2(input.get(), STDIN_FILENO);
    ::dup2(output.get(), STDOUT_FILENO);
    ::dup2(error.get(), STDERR_FILENO);
    ::execvpe(command[0], command.data(), environment.data());
    ::dprintf(STDERR_FILENO, "%s: cannot be started: %s\n", command[0], std::strerror(errno));
    ::_exit(127);
  }
  return process::ChildProcess(pid);
}

std::optional<std::string> enter_private_mounts() {
  if (::unshare(CLONE_NEWNS) != 0 ||
      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("tmpfs", "/dev/shm", "tmpfs", 0, nullptr) != 0) {
    return fmt::format("cannot make mounts of its own: {}", std::strerror(errno));
  }
  return std::nullopt;
}

bool enter_private_network() {
  const FileDescriptor before(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  if (!before || ::unshare(CLONE_NEWNET) != 0) return false;
  try {
    run_command({"ip", "link", "set", "lo", "up"}, -1);
    return true;
  } catch (const Error&) {
    ::setns(before.get(), CLONE_NEWNET);
    return false;
  }
}

SmallDisk::SmallDisk(fs::path folder) : folder_(std::move(folder)) {
  make_directories(folder_);
  if (::mount("tmpfs", folder_.c_str(), "tmpfs", 0, kDiskSize) != 0) {
    throw Error("{}: cannot mount a small disk: {}", folder_.string(), std::strerror(errno));
  }
}

SmallDisk::~SmallDisk() {
  ::umount2(folder_.c_str(), MNT_DETACH);
}

void SmallDisk::fill() const {
  const fs::path path = folder_ / "filler";
  const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  if (!file) throw Error("{}: cannot create: {}", path.string(), std::strerror(errno));
  const std::string block(4096, 'x');
  while (true) {
    const ssize_t size = ::write(file.get(), block.data(), block.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == ENOSPC) return;
    if (size < 0) throw Error("{}: cannot write: {}", path.string(), std::strerror(errno));
  }
}

void SmallDisk::empty() const {
  fs::remove(folder_ / "filler");
}

HostPair::HostPair() : networks_{make_network(), make_network()} {
  // `ip` finds a namespace by a path that has a slash.
  const std::string other = fmt::format("/proc/{}/fd/{}", ::getpid(), networks_[1].get());
  run_command(
      {"ip", "link", "add", "name", "ls0", "type", "veth", "peer", "name", "ls1", "netns", other},
      network(0));
  for (int host = 0; host < 2; ++host) {
    const std::string device = fmt::format("ls{}", host);
    run_command({"ip", "address", "add", fmt::format("10.205.0.{}/24", host + 1), "dev", device},
                network(host));
    run_command({"ip", "link", "set", "lo", "up"}, network(host));
    set_link(host, true);
  }
}

void HostPair::set_link(int host, bool up) const {
  run_command({"ip", "link", "set", fmt::format("ls{}", host), up ? "up" : "down"}, network(host));
}

std::map<std::string, std::string> listening_ports(int network) {
  const NetworkScope scope(network);
  std::map<std::string, std::string> ports;
  for (const char* const path : {"/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"}) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);  // the names of the columns
    while (std::getline(file, line)) {
      std::istringstream words(line);
      std::string number, local, remote, state, queues, timer, retransmitted, user, timeout, inode;
      words >> number >> local >> remote >> state >> queues >> timer >> retransmitted >> user >>
          timeout >> inode;
      constexpr char kListens[] = "0A";
      // Which process has a socket of another user can be hidden.
      if (state == kListens && user == std::to_string(::geteuid())) ports[inode] = local;
    }
  }
  return ports;
}

bool is_held(const std::string& inode) {
  const std::string wanted = "socket:[" + inode + "]";
  std::error_code ignored;
  for (const fs::path& process : entries_of("/proc")) {
    for (const fs::path& file : entries_of(process / "fd")) {
      if (fs::read_symlink(file, ignored) == wanted) return true;
    }
  }
  return false;
}

}  // namespace lockstep::chaos

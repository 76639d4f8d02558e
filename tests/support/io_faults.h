// Makes chosen calls to the system fail, inside a test's process. io_faults.cpp defines write(),
// rename(), send() and other functions of the C library; the program's definitions come before the
// library's, so the code under test, libstdc++ and LibTorch call these. What the C library calls
// itself (fopen, fwrite) is not seen. unlink() is left out: it is how code cleans up after a fault.
#pragma once

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace lockstep {

enum class IoCall {
  kOpen,
  kRead,
  kWrite,
  kSync,
  kRename,
  kLink,
  kTruncate,
  kMakeFolder,
  kRemove,  // remove(), which std::filesystem::remove() calls
  kAllocate,
  kMemoryFile,
  kMap,
  kSocket,
  kListen,
  kConnect,
  kAccept,
  kSend,
  kReceive,
};

std::string to_string(IoCall call);

struct IoFault {
  int error = 0;  // the call has no effect and fails with this errno
  // Of a read, write, send or receive: only a part of the bytes is transferred, and the call says
  // so. If there is an error, too, the next call of this kind on the same thing fails with it.
  bool torn = false;
};

std::string to_string(const IoFault& fault);

// A call that the plan is about.
struct SeenCall {
  IoCall call = IoCall::kOpen;
  std::string thing = {};   // the file or the socket
  std::string thread = {};  // the name of the thread
};

// Which calls are counted, and which one of them fails.
struct IoFaultPlan {
  // Files whose path begins with this, under any name that they had when they were opened. Memory
  // of memfd_create() has the path "/memfd:NAME". "": no files.
  std::string files = {};
  // Sockets of which one end has this name: "127.0.0.1:4711", or "@name" for an abstract name of
  // this host. "": no sockets. socket() has no name, so all its calls count if this is set.
  std::string sockets = {};
  // Kinds of calls on these files and sockets that always fail, with the errno. They are not
  // counted.
  std::map<IoCall, int> always = {};
  // Imitates a file system that has no unnamed files: open() with O_TMPFILE fails with EOPNOTSUPP.
  bool no_unnamed_files = false;
  std::set<IoCall> calls = {};                 // only these; all if empty
  std::optional<std::thread::id> thread = {};  // only of this thread; of all if not set
  std::optional<std::int64_t> nth = {};        // the call that fails, from 1; none if not set
  IoFault fault = {};
};

// The plan is in force from the constructor to the destructor. There may be one at a time.
class IoFaults {
 public:
  explicit IoFaults(IoFaultPlan plan);
  ~IoFaults();
  IoFaults(const IoFaults&) = delete;
  IoFaults& operator=(const IoFaults&) = delete;

  // The calls until now.
  std::vector<SeenCall> seen() const;
  // The call that failed, if there was one.
  std::optional<SeenCall> struck() const;
};

// What can go wrong with a call of this kind on a real system.
std::vector<IoFault> faults_of(IoCall call);

// One run of an operation with one fault.
struct FaultedRun {
  SeenCall call = {};
  IoFault fault = {};
  bool struck = false;     // false: with several threads, a run may have fewer calls
  std::string error = {};  // what the operation threw; "" if it succeeded

  // Whether the operation must have succeeded, because the call only had to be repeated.
  bool is_harmless() const { return fault.error == EINTR || (fault.torn && fault.error == 0); }
};

// Counts the calls of an undisturbed operation. Then repeats it for each of these calls and each
// fault of such a call, and calls `check` after each run. `prepare` is called before each run. Both
// are called without faults. gtest's messages name the call and the fault. Returns the number of
// runs with a fault. Meanwhile, syncs do not wait for the disk.
struct FaultSweep {
  IoFaultPlan plan = {};
  std::function<void()> prepare = [] {};
  std::function<void()> operation;
  std::function<void(const FaultedRun&)> check = [](const FaultedRun&) {};
  std::function<std::vector<IoFault>(IoCall)> faults = faults_of;
};
std::int64_t fail_each_call(const FaultSweep& sweep);

// A temporary folder in memory, if the host has /dev/shm: these tests make thousands of files, and
// a busy disk would make them slow. It is removed with all its content.
class FolderInMemory {
 public:
  FolderInMemory();
  ~FolderInMemory();
  FolderInMemory(const FolderInMemory&) = delete;
  FolderInMemory& operator=(const FolderInMemory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::filesystem::path& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// How many descriptors and threads this process has.
std::int64_t open_descriptors();
std::int64_t running_threads();

}  // namespace lockstep

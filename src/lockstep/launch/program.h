// Another program as a child process, with a process group of its own.
#pragma once

#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "lockstep/base/file.h"
#include "lockstep/launch/environment.h"

namespace lockstep::launch {

// How a program ended.
struct ProgramEnd {
  int exit_code = 0;
  int signal = 0;  // that killed it; 0: it ended by itself

  bool ok() const { return exit_code == 0 && signal == 0; }
  // As a shell tells: 128 + the signal, or the exit code.
  int shell_code() const { return signal != 0 ? 128 + signal : exit_code; }
};

// "ended well", "exit code 3", "killed by signal 9 (Killed)"
std::string to_string(const ProgramEnd& end);

struct ProgramOptions {
  std::vector<std::string> command;  // looked for in PATH; then its arguments
  Environment environment;           // all of it
};

// Standard input is empty; standard output and error are pipes. The program dies with the thread
// that started it.
class Program {
 public:
  // Throws WorkerError, naming the program and the cause, where it cannot be started.
  explicit Program(const ProgramOptions& options);
  // Kills and reaps whatever is left of it.
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t pid() const { return pid_; }
  // Readable when the program has ended.
  int ended_fd() const { return process_.get(); }
  // Of standard output (0) and error (1); non-blocking.
  int output_fd(std::size_t stream) const { return outputs_[stream].get(); }

  // To the program and all its children that did not leave its group.
  void send(int signal) const;

  // To be called when ended_fd() is readable: kills what it left behind and says how it ended.
  ProgramEnd reap();
  bool reaped() const { return reaped_; }

 private:
  pid_t pid_ = -1;
  FileDescriptor process_;
  std::array<FileDescriptor, 2> outputs_;
  bool reaped_ = false;
};

}  // namespace lockstep::launch

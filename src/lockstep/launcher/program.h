// Another program as a child process, with a process group of its own.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/process/child_process.h"
#include "lockstep/process/environment.h"

namespace lockstep::launcher {

// A program that could not be started.
class StartError : public WorkerError {
 public:
  StartError(const std::string& message, int shell_code)
      : WorkerError(message), shell_code_(shell_code) {}

  // As a shell tells it: 127 where there is no such program, 126 where it cannot be executed.
  int shell_code() const { return shell_code_; }

 private:
  int shell_code_;
};

struct ProgramOptions {
  std::vector<std::string> command;  // looked for in PATH; then its arguments
  process::Environment environment;  // all of it
};

// Standard input is empty; standard output and error are pipes. No signal is blocked, and SIGCHLD
// has its default action, whatever it is here: a program that waits for children of its own needs
// that. The program dies with the thread that started it.
class Program {
 public:
  // Throws StartError, naming the program and the cause, where the program cannot be executed, and
  // WorkerError where this process has no descriptors or processes left for it.
  explicit Program(const ProgramOptions& options);
  // Kills and reaps whatever is left of it.
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // The process, which leads a group of its own. Not to be reaped by others.
  const process::ChildProcess& process() const { return process_; }
  // Of standard output (0) and error (1); non-blocking.
  int output_fd(std::size_t stream) const { return outputs_[stream].get(); }

  // To the program and all its children that did not leave its group.
  void send(int signal) const { process_.send_to_group(signal); }

  // To be called once, when the process has ended: kills what it left behind and says how it ended.
  process::ChildEnd reap();

 private:
  process::ChildProcess process_;
  std::array<FileDescriptor, 2> outputs_;
};

}  // namespace lockstep::launcher

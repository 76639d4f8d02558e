// Runs another program as a child process with its own process group.
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

  // The code that a shell would report: 127 if there is no such program, 126 if it cannot be
  // executed.
  int shell_code() const { return shell_code_; }

 private:
  int shell_code_;
};

struct ProgramOptions {
  std::vector<std::string> command;  // the program, searched for in PATH, and its arguments
  process::Environment environment;  // all variables of the program
  int inherited_fd = -1;  // a descriptor that the program gets under the same number; -1: none
};

// The program's standard input is empty; its standard output and error are pipes. No signal is
// blocked, and SIGCHLD has its default action even if it is ignored here, because a program that
// waits for its children needs that. The program is killed when the thread that started it ends.
class Program {
 public:
  // Throws StartError, naming the program and the cause, if the program cannot be executed, and
  // WorkerError if this process cannot get enough descriptors or fork.
  explicit Program(const ProgramOptions& options);
  // Kills the program's process group and reaps the program.
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // The process, which leads its process group. Only this object may reap it.
  const process::ChildProcess& process() const { return process_; }
  // The pipe of standard output (0) or error (1); non-blocking.
  int output_fd(std::size_t stream) const { return outputs_[stream].get(); }

  // Sends the signal to the program and to all processes of its group.
  void send(int signal) const { process_.send_to_group(signal); }

  // Must be called once, when the process has ended. Kills what is left of its group and returns
  // how the program ended.
  process::ChildEnd reap();

 private:
  process::ChildProcess process_;
  std::array<FileDescriptor, 2> outputs_;
};

}  // namespace lockstep::launcher

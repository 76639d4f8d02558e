// A program that a launcher starts again after a failure, without a launcher.
#pragma once

#include <chrono>
#include <csignal>
#include <functional>
#include <string>

#include <gtest/gtest.h>
#include <sys/wait.h>

#include "lockstep/process/memory_file.h"
#include "tests/support/environment_scope.h"
#include "tests/support/torch_fork.h"

namespace lockstep {

// Calls the function, which returns an exit code, as the only rank of a launcher, in a process of
// its own. The launcher keeps the memory. Returns the status of the process.
inline int run_launched(const process::MemoryFile& memory, const std::function<int()>& work) {
  const pid_t process = start_process([&] {
    auto variables = variables_of_rank(0, 1);
    variables["TORCHELASTIC_MAX_RESTARTS"] = "3";
    variables[process::MemoryFile::kVariable] = std::to_string(memory.descriptor());
    const EnvironmentScope launcher(variables);
    return work();
  });
  int status = 0;
  EXPECT_EQ(::waitpid(process, &status, 0), process);
  return status;
}

// The first process has to kill itself. The launcher starts a second one, which has to end with 0.
inline void run_killed_once(const std::function<int(const process::MemoryFile&)>& work) {
  process::MemoryFile memory;
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto attempt = [&] { return run_launched(memory, [&] { return work(memory); }); };
  memory.begin_attempt({.attempt = 0, .began = now()});
  int status = attempt();
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  memory.note_failure({.attempt = 0, .rank = 0, .kind = process::FailureKind::kLost});
  memory.begin_attempt({.attempt = 1, .began = now(), .failed = now()});
  status = attempt();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace lockstep

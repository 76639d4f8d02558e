// A process that forks workers on request. It keeps the state of the moment in which it was made,
// so the workers of a later attempt begin as those of the first one did
// (docs/decisions/recovery.md).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>

#include <sys/types.h>

#include "lockstep/base/file.h"
#include "lockstep/process/child_process.h"
#include "lockstep/process/host_group.h"
#include "lockstep/process/shared_memory.h"

namespace lockstep::process {

struct TemplateMessage;
struct TemplatePage;

struct WorkerTemplateOptions {
  // Called once, in a trial worker: returns whether it can work after the fork. It tries what may
  // not survive a fork. If it is empty, there is no trial.
  std::function<bool()> probe = {};
  // If the template does not answer a request within this time, it is killed and counts as lost.
  std::chrono::milliseconds request_timeout = std::chrono::seconds(2);
};

// A worker that the template shall fork.
struct WorkerRequest {
  int rank = 1;        // in its group
  int first_rank = 0;  // the rank of the group's rank 0 in messages
  std::chrono::milliseconds timeout = std::chrono::minutes(5);  // of every wait for other ranks
  const SharedMemory& memory;                                   // of the group
  const FileDescriptor& output;  // where the worker prints; empty: to the template's output
};

// The template has one thread and touches nothing of the program. Its workers are children of the
// process that made the template, not of the template: that process can wait for them, they die
// with it, and the end of the template does not disturb them. The template dies with that process,
// too, and with the thread that made it: that thread must outlive this object.
//
// A worker has its own position in each file that the program had open for reading only: the one of
// the moment in which the template was made. It does not see what this process read since then.
//
// Only one thread may use it.
class WorkerTemplate {
 public:
  // `work` is what every worker runs. If no template can be made whose workers pass the trial, this
  // object is lost from the beginning.
  WorkerTemplate(const WorkerTemplateOptions& options, const std::function<void(HostGroup&)>& work);
  // Ends the template. Its workers go on.
  ~WorkerTemplate();
  WorkerTemplate(const WorkerTemplate&) = delete;
  WorkerTemplate& operator=(const WorkerTemplate&) = delete;

  // False after the template has ended or was given up. It does not come back.
  bool is_alive();
  pid_t pid() const { return process_.pid(); }  // 0 if it was given up

  // The pid of a new child of this process, which runs a worker. On failure -1, and errno says why:
  // ESRCH if the template is lost, EAGAIN, ENOMEM or EMFILE if there can be no more processes.
  pid_t fork_worker(const WorkerRequest& request);

 private:
  void start(const std::function<bool()>& probe, const std::function<void(HostGroup&)>& work,
             bool bare);
  bool passes_trial(std::chrono::milliseconds limit);
  pid_t request(TemplateMessage message, std::span<const int> descriptors);
  pid_t answer(std::uint64_t number);
  void give_up();
  TemplatePage& page() const;

  std::chrono::milliseconds request_timeout_;
  SharedMemory memory_;  // of the page that the template shares
  FileDescriptor socket_;
  ChildProcess process_;
  std::uint64_t requests_ = 0;
};

}  // namespace lockstep::process

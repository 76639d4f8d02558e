// Decides whether a failure of a run is worth another attempt.
//
//   a process was killed, ended or hung        yes
//   an exception, or a lack of memory          yes, but not for the second time at the same batch
//   a wrong option                             no: it would fail again
//   more failures than max_restarts            no
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "lockstep/process/host_group.h"

namespace lockstep {

class RestartPolicy {
 public:
  explicit RestartPolicy(int max_restarts) : max_restarts_(max_restarts) {}

  int max_restarts() const { return max_restarts_; }
  // How many attempts were allowed after the first one.
  int restarts() const { return restarts_; }
  // All failures so far, in their order.
  const std::vector<process::RankFailure>& failures() const { return failures_; }

  // Notes the failure. Returns whether another attempt is allowed, and counts it then.
  bool allows_another(const process::RankFailure& failure);

  // How long to wait before the attempt that was allowed last.
  std::chrono::milliseconds backoff() const { return process::restart_backoff(restarts_); }

  // After a refusal: why, and what happened each time. Empty if there was no refusal, or if the
  // only failure is the last one.
  std::string describe_refusal() const;

 private:
  bool is_repeated(const process::RankFailure& failure) const;

  int max_restarts_;
  int restarts_ = 0;
  std::string refusal_;
  std::vector<process::RankFailure> failures_;
};

}  // namespace lockstep

#include "lockstep/train/restart_policy.h"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {

using process::FailureKind;
using process::RankFailure;

std::string_view name_of(FailureKind kind) {
  switch (kind) {
    case FailureKind::kError:
      return "error";
    case FailureKind::kConfig:
      return "wrong option";
    case FailureKind::kOutOfMemory:
      return "out of memory";
    case FailureKind::kLost:
      return "lost";
    case FailureKind::kHang:
      return "hang";
  }
  return "error";
}

bool RestartPolicy::allows_another(const RankFailure& failure) {
  const bool repeated = is_repeated(failure);
  failures_.push_back(failure);
  if (failure.kind == FailureKind::kConfig) {
    refusal_ = "a wrong option fails again";
  } else if (repeated) {
    refusal_ = "it failed at the same batch twice";
  } else if (restarts_ >= max_restarts_) {
    refusal_ = fmt::format("max_restarts is {}", max_restarts_);
  } else {
    restarts_ += 1;
    return true;
  }
  return false;
}

// Whether user code or a lack of memory has ended an earlier attempt at the same batch. The rank
// does not count: with fewer workers another rank has the same samples.
bool RestartPolicy::is_repeated(const RankFailure& failure) const {
  if (failure.kind != FailureKind::kError && failure.kind != FailureKind::kOutOfMemory) {
    return false;
  }
  return std::ranges::any_of(failures_, [&](const RankFailure& earlier) {
    return earlier.kind == failure.kind && earlier.epoch == failure.epoch &&
           earlier.batch == failure.batch;
  });
}

std::chrono::milliseconds RestartPolicy::backoff() const {
  using std::chrono::milliseconds;
  constexpr milliseconds kMost(5000);
  if (restarts_ <= 1) return milliseconds(0);
  const int doublings = std::min(restarts_ - 2, 10);
  return std::min(milliseconds(100) * (1 << doublings), kMost);
}

std::string RestartPolicy::describe_refusal() const {
  if (refusal_.empty() || failures_.size() < 2) return "";
  std::string text = fmt::format("the run is not restarted again: {}. Its failures:", refusal_);
  for (std::size_t i = 0; i < failures_.size(); ++i) {
    const RankFailure& failure = failures_[i];
    const std::string place =
        failure.epoch == 0 ? ""
                           : fmt::format(" (in epoch {}, batch {})", failure.epoch, failure.batch);
    text += fmt::format("\n  {}. {}", i + 1,
                        process::describe_failure(failure.rank, place, failure.reason));
  }
  return text;
}

}  // namespace lockstep

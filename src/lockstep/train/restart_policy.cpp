#include "lockstep/train/restart_policy.h"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {

using process::FailureKind;
using process::RankFailure;

namespace {

process::FailurePlace to_place(const RankFailure& failure) {
  return {.kind = failure.kind, .epoch = failure.epoch, .batch = failure.batch};
}

}  // namespace

bool RestartPolicy::allows_another(const RankFailure& failure) {
  const bool repeated = is_repeated(failure);
  failures_.push_back(failure);
  if (failure.kind == FailureKind::kConfig) {
    refusal_ = "a wrong option fails again";
  } else if (repeated) {
    refusal_ = failure.epoch == 0 ? "it failed before the first batch twice"
                                  : "it failed at the same batch twice";
  } else if (restarts_ >= max_restarts_) {
    refusal_ = fmt::format("max_restarts is {}", max_restarts_);
  } else {
    restarts_ += 1;
    return true;
  }
  return false;
}

bool RestartPolicy::is_repeated(const RankFailure& failure) const {
  return std::ranges::any_of(failures_, [&](const RankFailure& earlier) {
    return is_repetition(to_place(earlier), to_place(failure));
  });
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

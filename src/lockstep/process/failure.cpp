#include "lockstep/process/failure.h"

#include <algorithm>
#include <new>

#include "lockstep/base/error.h"

namespace lockstep::process {

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

FailureKind failure_kind(const std::exception& error) {
  if (dynamic_cast<const ConfigError*>(&error) != nullptr) return FailureKind::kConfig;
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return FailureKind::kOutOfMemory;
  // This module does not include torch, so it finds LibTorch's errors by their words: "CUDA out of
  // memory", "DefaultCPUAllocator: can't allocate memory" (or "not enough memory"). "Cannot
  // allocate memory" is the system's text for ENOMEM, which our own errors quote.
  const std::string_view text = error.what();
  for (const std::string_view words :
       {"out of memory", "can't allocate memory", "not enough memory", "Cannot allocate memory"}) {
    if (text.find(words) != std::string_view::npos) return FailureKind::kOutOfMemory;
  }
  return FailureKind::kError;
}

bool is_repetition(const FailurePlace& first, const FailurePlace& second) {
  if (second.kind != FailureKind::kError && second.kind != FailureKind::kOutOfMemory) return false;
  return first.kind == second.kind && first.epoch == second.epoch && first.batch == second.batch;
}

std::chrono::milliseconds restart_backoff(int restart) {
  using std::chrono::milliseconds;
  constexpr milliseconds kMost(5000);
  if (restart <= 1) return milliseconds(0);
  const int doublings = std::min(restart - 2, 10);
  return std::min(milliseconds(100) * (1 << doublings), kMost);
}

}  // namespace lockstep::process

// What made a rank fail, and the rules for another attempt that forked workers and the launcher
// share.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <string_view>

namespace lockstep::process {

// It decides whether another attempt is worth it. The numbers are stored and sent.
enum class FailureKind : std::uint32_t {
  kError = 0,        // an exception
  kConfig = 1,       // a wrong option: the next attempt would fail, too
  kOutOfMemory = 2,  // an exception for lack of memory
  kLost = 3,         // its process was killed or ended
  kHang = 4,         // it did not answer within the time limit, or its process is stopped
};

// "error", "wrong option", "out of memory", "lost", "hang": for files and messages.
std::string_view name_of(FailureKind kind);

// kConfig for a ConfigError, kOutOfMemory for std::bad_alloc and for an error whose message says
// that memory is lacking (LibTorch has such errors), kError for any other exception.
FailureKind failure_kind(const std::exception& error);

// A failure and where the rank was.
struct FailurePlace {
  FailureKind kind = FailureKind::kError;
  std::int64_t epoch = 0;
  std::int64_t batch = 0;
};

// Whether the second failure shows that the first one was no accident: user code threw, or memory
// lacked, at the same batch. The rank does not count: with fewer workers another rank has the same
// samples.
bool is_repetition(const FailurePlace& first, const FailurePlace& second);

// How long to wait before the restart with this number, which counts from 1. The first restart
// begins at once, because it is mostly enough. Later ones wait 0.1 s, then twice as long each time,
// up to 5 s.
std::chrono::milliseconds restart_backoff(int restart);

}  // namespace lockstep::process

// Memory that `lockstep launch --max-restarts N` keeps for the ranks of a host. It outlives the
// ranks: a rank that is started again finds there the newest point of the run, and which failures
// came before.
//
// It is a file in memory without a name, so nothing is left whoever dies. The ranks inherit its
// descriptor; its number is in the variable LOCKSTEP_MEMORY.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/file.h"
#include "lockstep/process/environment.h"
#include "lockstep/process/failure.h"

namespace lockstep::process {

// A failure of one rank. A rank notes only its own failures, or that another rank was lost or
// hangs, and never that it gave up because of another rank: that rank is the one to blame.
struct FailureNote {
  int attempt = 0;
  int rank = 0;
  FailureKind kind = FailureKind::kError;
  std::int64_t epoch = -1;  // -1: outside of an epoch
  std::int64_t batch = -1;  // -1: outside of a batch
  std::string reason = {};  // cut to MemoryFile::kLongestReason bytes
  // When it was noted; note_failure() sets it. The clock is the same in all processes of a host.
  std::chrono::steady_clock::time_point time = {};
};

// A point that was read back.
struct StoredPoint {
  std::uint64_t sequence = 0;
  std::string bytes = {};
};

// What the ranks are told of their attempt.
struct AttemptStart {
  int attempt = 0;                                   // 0, 1, ...
  std::chrono::steady_clock::time_point began = {};  // when its ranks were started
  // When the failure was noticed that ended the attempt before. Nothing in the first attempt.
  std::optional<std::chrono::steady_clock::time_point> failed = {};
};

// Any process and thread may note failures and read. Only one thread of one process at a time may
// write points.
class MemoryFile {
 public:
  static constexpr const char* kVariable = "LOCKSTEP_MEMORY";
  static constexpr int kMostRuns = 1024;
  static constexpr std::size_t kMostNotes = 128;  // older ones are overwritten
  static constexpr std::size_t kLongestReason = 900;

  // Makes new memory; the launcher does. Throws Error with the cause.
  MemoryFile();
  class Opened;  // only inherited() can make one
  explicit MemoryFile(Opened opened);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  // The memory that a launcher has given this process; null if the variable is not set. Later calls
  // give the same memory. The descriptor is closed on exec from now on. Throws ConfigError with the
  // cause if the descriptor is not such memory.
  static std::shared_ptr<MemoryFile> inherited(
      const Environment& environment = current_environment());

  int descriptor() const { return descriptor_.get(); }

  // Stores the newest point of the program's `run`-th train() call (0, 1, ...); `sequence` must
  // grow, from 1 on. Two places are used in turns, so if this process is killed meanwhile, or this
  // throws, the point before can be read. Throws Error if there is not enough memory, or if the
  // user's limit for the size of files (ulimit -f) forbids it.
  void write(int run, std::uint64_t sequence, std::string_view bytes) {
    write(run, sequence, std::span(&bytes, 1));
  }
  void write(int run, std::uint64_t sequence, std::span<const std::string_view> pieces);
  // The same for bytes that are not in memory as a whole: `produce` writes them piece by piece.
  void write(int run, std::uint64_t sequence,
             const std::function<void(const WriteBytes&)>& produce) {
    store(run, sequence, 0, produce);
  }

  // The newest point of the run that is whole: its checksum is verified. Nothing if there is none.
  std::optional<StoredPoint> read(int run) const;

  // How many points were stored, in all runs and attempts. Cheap.
  std::uint64_t points() const;

  // Rank 0 tells after every batch how many of the run it has finished since the newest point, so
  // that the next attempt knows how many it repeats. Costs one write to memory.
  void count_batches(int run, std::int64_t batches);
  // The count of the attempt before this one. Nothing if rank 0 of that attempt was on another
  // host, or had not counted yet.
  std::optional<std::int64_t> batches_lost(int run) const;

  void note_failure(FailureNote note);
  // In the order in which they were noted.
  std::vector<FailureNote> failures() const;

  // The launcher calls this before it starts the ranks of an attempt.
  void begin_attempt(const AttemptStart& start);
  AttemptStart attempt_start() const;
  int attempt() const { return attempt_start().attempt; }

 private:
  struct PointPlace;
  struct NoteSlot;
  struct MemoryHeader;
  class PointWriter;

  void map();
  // `size` is what is known of the size before; more bytes may come.
  void store(int run, std::uint64_t sequence, std::uint64_t size,
             const std::function<void(const WriteBytes&)>& produce);
  std::uint64_t end_of_places() const;
  PointPlace& place_to_write(int run) const;
  void drop_older_points(int run) const;
  void free_pages(const PointPlace& place) const;
  std::optional<StoredPoint> read_place(const PointPlace& place) const;

  FileDescriptor descriptor_;
  MemoryHeader* header_ = nullptr;
};

}  // namespace lockstep::process

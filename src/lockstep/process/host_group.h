// The ranks of one host, as they see each other through shared memory: which ranks are present,
// which rank failed and why, and a barrier that costs a fraction of a microsecond when no rank is
// late.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/process/failure.h"
#include "lockstep/process/process.h"
#include "lockstep/process/shared_memory.h"

namespace lockstep::process {

// The operation of a collective call. All ranks must call the same one.
enum class Operation : std::uint8_t {
  kBarrier,
  kVote,
  kBroadcast,
  kAllReduce,
  kGather,
  kGradients,
  kUpdate,
  kJoin,
  kDevices,  // the announcement of a collective on the ranks' devices
};
std::string_view name_of(Operation operation);

struct RankFailure {
  int rank = 0;
  std::string reason;
  FailureKind kind = FailureKind::kError;
  // The rank's progress when its failure was reported; 0 if it is not known.
  std::int64_t epoch = 0;
  std::int64_t batch = 0;
};

// "rank 2 (in epoch 1, batch 3): out of memory". A reason that begins with "rank " was passed on
// from another rank; it is returned unchanged.
std::string describe_failure(int rank, std::string_view progress, std::string_view reason);

// "rank 1", "ranks 0, 2"
std::string list_ranks(const std::vector<int>& ranks);

enum class MemberState : std::uint32_t {
  kEmpty,    // the rank has not joined yet
  kUnfit,    // its process started, but cannot work (ForkedWorkersOptions::probe)
  kPresent,  // it has joined and works
  kLeft,     // it is done, without a failure
};

// The shared memory of a group of `size` ranks, followed by room for their messages. Forked
// processes inherit it; other processes open its handle.
struct HostGroupMemory {
  explicit HostGroupMemory(int size);
  explicit HostGroupMemory(SharedMemory opened) : memory(std::move(opened)) {}

  std::size_t size() const;  // number of ranks

  SharedMemory memory;
};

struct HostGroupOptions {
  int rank = 0;
  std::chrono::milliseconds timeout = std::chrono::minutes(5);  // of every collective call
  // The numbers that messages use for the ranks, if the group is only a part of the run. If empty,
  // messages use the ranks in this group.
  std::vector<int> names = {};
};

// One rank's view of the group. Only one thread at a time may call meet() and check_processes().
// Any thread may read the state, set the state and report a failure.
class HostGroup {
 public:
  HostGroup(std::shared_ptr<HostGroupMemory> memory, const HostGroupOptions& options);
  ~HostGroup();
  HostGroup(const HostGroup&) = delete;
  HostGroup& operator=(const HostGroup&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  int name(int rank) const;

  // Sets this rank's state to kPresent.
  void join();
  void set_state(MemberState state);
  MemberState state(int rank) const;
  int pid(int rank) const;

  struct CollectiveCall {
    Operation operation = Operation::kBarrier;
    std::uint64_t detail = 0;  // for example a size in bytes; must be the same on all ranks
    // What else must be the same on all ranks, for example an element type or a root. HostGroup
    // only compares it; its meaning is up to the caller.
    std::uint32_t kind = 0;
    std::uint64_t word = 0;  // a value of this rank that all ranks can read afterwards
  };
  // Collective. Returns when all ranks have called it. What a rank wrote to shared memory before
  // the call is visible to all ranks after it. Throws WorkerError if a rank fails. Throws CommError
  // at the time limit, or if another rank calls a different operation. Both errors name the ranks.
  void meet(const CollectiveCall& call);

  // How messages describe CollectiveCall::kind, for example "sum of Float". Empty text adds
  // nothing.
  using DescribeKind = std::function<std::string(Operation operation, std::uint32_t kind)>;
  void set_describe_kind(DescribeKind describe) { describe_kind_ = std::move(describe); }

  // CollectiveCall::word of that rank in the last call of meet().
  std::uint64_t word(int rank) const;

  // Memory for what the ranks send each other: kMessageBytes for each rank, and kMessageBytes that
  // all ranks share. The transport decides how it is used (comm/message_slots.h).
  static constexpr std::size_t kMessageBytes = 1024 * 1024;
  std::byte* messages() const;

  // Why a rank is late without being at fault. The ranks that wait for it read this.
  enum class LateReason : std::uint32_t {
    kNone,
    kOtherHosts,  // it waits for ranks of other hosts, and that wait has its own time limit
    kAlone,       // it does work in which no other rank takes part: loading, saving, a callback
  };
  // While a rank has a late reason, ranks that wait for it do not count this time against their
  // time limit. With kAlone they wait at most kAloneLimits times the time limit.
  static constexpr int kAloneLimits = 12;
  LateReason set_late_reason(LateReason late_reason);  // returns the previous one
  LateReason late_reason(int rank) const;

  // The listener is called with the missing ranks when this rank has waited for a second, or for a
  // quarter of the time limit if that is shorter. When all ranks have arrived, it is called again
  // with an empty list. Both calls are made by the thread that called meet().
  void set_wait_listener(std::function<void(const std::vector<int>& names)> listener);

  // The epoch and batch that this rank is in, for messages about it.
  void set_progress(std::int64_t epoch, std::int64_t batch);
  std::string progress(int rank) const;

  // Reports a failure of `rank` and wakes all ranks that wait. Only the first failure is kept:
  // returns false if there was one before.
  bool fail(int rank, std::string_view reason, FailureKind kind = FailureKind::kError) noexcept;
  std::optional<RankFailure> failure() const;
  // The same with the number that messages use for the rank.
  std::optional<RankFailure> named_failure() const;
  // Throws WorkerError if there is a failure.
  void check() const;
  // The same, and looks for ranks whose process has ended without leaving the group. For a wait
  // that is not a meet(). It looks at most every 20 ms, and reports a rank that has been gone for a
  // while.
  void check_processes();

 private:
  struct MemberRecord;
  struct Header;
  struct WaitTimes;

  MemberRecord& record(int rank) const;
  void sleep_until_arrival(int rank, const CollectiveCall& call, WaitTimes& wait_times);
  bool arrived(int rank) const;
  void count(WaitTimes& wait_times, std::chrono::nanoseconds waited);
  void tell_of_wait(WaitTimes& wait_times);
  std::vector<int> missing() const;
  bool is_stopped(int rank) const;
  void check_for_gone_ranks(WaitTimes& wait_times);
  bool is_gone(int rank);
  void compare(const CollectiveCall& call) const;
  void time_out(const CollectiveCall& call, const WaitTimes& wait_times);
  std::string describe(std::uint64_t what, std::uint32_t kind) const;
  int spins() const;

  std::shared_ptr<HostGroupMemory> memory_;
  Header* header_;
  int rank_;
  int size_;
  std::chrono::milliseconds timeout_;
  std::vector<int> names_;
  DescribeKind describe_kind_;
  std::function<void(const std::vector<int>&)> wait_listener_;
  int spins_ = 0;
  std::uint32_t meetings_ = 0;
  std::mutex failing_;                             // one fail() of this process at a time
  std::vector<std::optional<PeerProcess>> peers_;  // other ranks; opened when a rank is late
  // Of check_processes(): when it last looked, and when it first found that a rank was gone.
  std::chrono::steady_clock::time_point looked_{};
  std::optional<std::chrono::steady_clock::time_point> missed_;
};

}  // namespace lockstep::process

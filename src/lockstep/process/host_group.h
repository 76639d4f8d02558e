// The ranks of one host, as they see each other through shared memory: who is there, who failed and
// why, and a meeting point that costs a fraction of a microsecond when nobody is late.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/process/process.h"
#include "lockstep/process/shared_memory.h"

namespace lockstep::process {

// What the ranks meet for. All must meet for the same thing.
enum class Operation : std::uint8_t {
  kBarrier,
  kVote,
  kBroadcast,
  kAllReduce,
  kGather,
  kGradients,
  kUpdate,
  kJoin,
};
std::string_view name_of(Operation operation);

struct RankFailure {
  int rank = 0;
  std::string reason;
};

// "rank 2 (in epoch 1, batch 3): out of memory". A reason that was passed on names its rank itself.
std::string describe_failure(int rank, std::string_view progress, std::string_view reason);

// "rank 1", "ranks 0, 2"
std::string list_ranks(const std::vector<int>& ranks);

enum class MemberState : std::uint32_t {
  kEmpty,    // nobody has come yet
  kUnfit,    // came, and cannot work in this process
  kPresent,  // works
  kLeft,     // went, all being well
};

// The memory of a group of `size`, and room for their messages behind it. A fork inherits it, or
// others open its handle.
struct HostGroupMemory {
  explicit HostGroupMemory(int size);
  explicit HostGroupMemory(SharedMemory opened) : memory(std::move(opened)) {}

  SharedMemory memory;
};

struct HostGroupOptions {
  int rank = 0;
  std::chrono::milliseconds timeout = std::chrono::minutes(5);  // of every meeting
  // What messages call the ranks, where the group is a part of a run; their numbers where empty.
  std::vector<int> names = {};
};

// One rank's view. A single thread may meet; any thread may look, fail and leave.
class HostGroup {
 public:
  HostGroup(std::shared_ptr<HostGroupMemory> memory, const HostGroupOptions& options);
  ~HostGroup();
  HostGroup(const HostGroup&) = delete;
  HostGroup& operator=(const HostGroup&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  int name(int rank) const;

  // Makes this rank present.
  void join();
  void set_state(MemberState state);
  MemberState state(int rank) const;
  int pid(int rank) const;

  struct CollectiveCall {
    Operation operation = Operation::kBarrier;
    std::uint64_t detail = 0;  // a size in bytes, say: must be the same on all ranks
    // What else must be the same on all ranks: an element type, a root. HostGroup only compares it;
    // the caller gives it a meaning.
    std::uint32_t kind = 0;
    std::uint64_t word = 0;  // this rank's, for all to read
  };
  // Returns when all ranks have come. What each wrote to shared memory before is visible to all
  // after. Throws WorkerError where a rank fails, CommError past the time limit or where others
  // meet for something else; both name the ranks.
  void meet(const CollectiveCall& call);

  // How messages describe CollectiveCall::kind, for example "sum of Float". Empty text adds
  // nothing.
  using DescribeKind = std::function<std::string(Operation operation, std::uint32_t kind)>;
  void set_describe_kind(DescribeKind describe) { describe_kind_ = std::move(describe); }

  // The words of the last meeting, by rank.
  std::uint64_t word(int rank) const;

  // Memory for what the ranks send each other: kMessageBytes for each rank and as much again for
  // all. The transport decides what is where in it (comm/message_slots.h).
  static constexpr std::size_t kMessageBytes = 1024 * 1024;
  std::byte* messages() const;

  // Why a rank is late without being at fault, for those that wait for it.
  enum class LateReason : std::uint32_t {
    kNone,
    kOtherHosts,  // it waits for ranks of other hosts itself, with a limit of its own
    kAlone,       // it does work that the others have no part in: loading, saving, a callback
  };
  // While a rank is on an late reason, the time limit of those that wait for it does not count; an
  // late reason of the kind kAlone is limited to kAloneLimits time limits.
  static constexpr int kAloneLimits = 12;
  LateReason set_late_reason(LateReason late_reason);  // returns the one before

  // Told of the ranks that this one has waited for for long (a second, or a quarter of the time
  // limit), and of none when they have come. Called by the thread that meets.
  void set_wait_listener(std::function<void(const std::vector<int>& names)> listener);

  // Where training is, for messages about this rank.
  void set_progress(std::int64_t epoch, std::int64_t batch);
  std::string progress(int rank) const;

  // The first failure counts; false where there was one before. Wakes everybody.
  bool fail(int rank, std::string_view reason) noexcept;
  std::optional<RankFailure> failure() const;
  // Throws WorkerError where there is one.
  void check() const;

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
  void look_for_the_gone(WaitTimes& wait_times);
  bool is_gone(int rank);
  void compare(const CollectiveCall& call) const;
  void time_out(const CollectiveCall& call);
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
  std::mutex failing_;                             // of this process's threads
  std::vector<std::optional<PeerProcess>> peers_;  // the others; looked for when one is late
};

}  // namespace lockstep::process

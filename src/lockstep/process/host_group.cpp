#include "lockstep/process/host_group.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstring>
#include <new>

#include <fmt/ranges.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/process/affinity.h"
#include "lockstep/process/process.h"

namespace lockstep::process {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// About half a millisecond. To sleep and be woken costs only some 30 microseconds. But that is much
// in training steps of a tenth of a millisecond, and ranks are often a little late: with a spin of
// 30 microseconds, the bench's workload A is a seventh slower. After half a millisecond, it is
// better to leave the core to other threads.
constexpr int kSpins = 20'000;
// How often a rank that sleeps checks whether the other ranks are still alive.
constexpr milliseconds kCheckInterval(50);
// The same for a rank that waits elsewhere (check_processes()).
constexpr milliseconds kLookInterval(20);
// How long a rank may be gone before a waiting rank reports that as a failure.
constexpr milliseconds kReportTime(300);

// How long a rank waits before it reports which ranks it waits for. This is early enough for other
// ranks, whose own wait may have begun before, to get the report within their time limit.
milliseconds long_wait(milliseconds timeout) {
  return std::min(milliseconds(1000), timeout / 4);
}

constexpr std::size_t kReasonBytes = 2000;
constexpr std::string_view kProcessEnded = "its process ended without reporting an error";

void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
           const timespec* timeout) {
  return ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value, timeout,
                   nullptr, 0);
}

void wake_all(std::atomic<std::uint32_t>& word) {
  futex(word, FUTEX_WAKE, INT_MAX, nullptr);
}

std::size_t round_up(std::size_t bytes) {
  return (bytes + 4095) / 4096 * 4096;
}

std::uint64_t packed(const HostGroup::CollectiveCall& call) {
  return (static_cast<std::uint64_t>(call.operation) << 56) |
         (call.detail & ((std::uint64_t{1} << 56) - 1));
}

constexpr std::size_t kRecordsOffset = 4096;
constexpr std::size_t kRecordBytes = 4096;

// Cores beyond these are not counted.
constexpr int kCoresInMask = 1024;

}  // namespace

std::string describe_failure(int rank, std::string_view progress, std::string_view reason) {
  if (reason.starts_with("rank ")) return std::string(reason);
  return fmt::format("rank {}{}: {}", rank, progress, reason);
}

std::string list_ranks(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

// What a rank writes about itself. The arrays hold the values of the last two collective calls: a
// rank can be one call ahead of another rank, never two.
struct alignas(64) HostGroup::MemberRecord {
  std::atomic<std::uint32_t> arrivals;  // number of its calls of meet(); other ranks sleep on it
  std::atomic<std::uint32_t> sleepers;  // number of ranks that sleep on `arrivals`
  std::atomic<std::int32_t> core;       // the core it ran on in its last call of meet()
  std::atomic<std::uint64_t> what[2];
  std::atomic<std::uint64_t> word[2];
  std::atomic<std::uint32_t> kind[2];
  alignas(64) std::atomic<std::uint32_t> state;
  std::atomic<std::int32_t> pid;
  std::atomic<std::uint64_t> start_time;  // of its process; a later one with this pid has another
  std::atomic<std::int64_t> epoch;
  std::atomic<std::int64_t> batch;
  std::atomic<std::uint32_t> late_reason;               // a LateReason
  std::atomic<std::uint64_t> cores[kCoresInMask / 64];  // the cores it may run on
  // The failure that this rank reported.
  FailureKind failure_kind;
  std::int64_t failure_epoch;
  std::int64_t failure_batch;
  char reason[kReasonBytes];
};

// A rank reports a failure by writing what it knows to its own record and then setting `failed` in
// one atomic step. If the rank is killed before that step, another rank can still report a failure.
struct HostGroup::Header {
  std::int32_t size;
  // Lower half: the reporting rank + 1; upper half: the rank that failed. 0: no failure.
  alignas(64) std::atomic<std::uint32_t> failed;
};

// How long one collective call has waited. The time limit is for the whole call, not for each rank
// that it waits for.
struct HostGroup::WaitTimes {
  std::chrono::nanoseconds waited{0};  // counts against the time limit
  std::chrono::nanoseconds alone{0};   // while all missing ranks had the reason kAlone
  std::chrono::nanoseconds total{0};
  bool told = false;                        // the listener was called
  std::optional<Clock::time_point> missed;  // when a rank was first found to be gone
};

std::string_view name_of(Operation operation) {
  switch (operation) {
    case Operation::kBarrier:
      return "barrier";
    case Operation::kVote:
      return "vote";
    case Operation::kBroadcast:
      return "broadcast";
    case Operation::kAllReduce:
      return "all_reduce";
    case Operation::kGather:
      return "gather";
    case Operation::kGradients:
      return "reduction of gradients";
    case Operation::kUpdate:
      return "update";
    case Operation::kJoin:
      return "start";
    case Operation::kDevices:
      return "collective on GPUs";
  }
  return "operation";
}

HostGroupMemory::HostGroupMemory(int size)
    : memory(kRecordsOffset + round_up(static_cast<std::size_t>(size) * kRecordBytes) +
             (static_cast<std::size_t>(size) + 1) * HostGroup::kMessageBytes) {
  std::memcpy(memory.data(), &size, sizeof size);
}

std::size_t HostGroupMemory::size() const {
  int size = 0;
  std::memcpy(&size, memory.data(), sizeof size);
  return static_cast<std::size_t>(size);
}

HostGroup::HostGroup(std::shared_ptr<HostGroupMemory> memory, const HostGroupOptions& options)
    : memory_(std::move(memory)),
      header_(reinterpret_cast<Header*>(memory_->memory.data())),
      rank_(options.rank),
      size_(header_->size),
      timeout_(options.timeout),
      names_(options.names),
      peers_(static_cast<std::size_t>(size_)) {
  static_assert(sizeof(MemberRecord) <= kRecordBytes && sizeof(Header) <= kRecordsOffset);
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
  if (rank_ < 0 || rank_ >= size_) {
    throw CommError("group: rank: expected 0 to {}, got {}", size_ - 1, rank_);
  }
  if (!names_.empty() && static_cast<int>(names_.size()) != size_) {
    throw CommError("group: names: expected {}, got {}", size_, names_.size());
  }
}

HostGroup::~HostGroup() = default;

HostGroup::MemberRecord& HostGroup::record(int rank) const {
  return *reinterpret_cast<MemberRecord*>(memory_->memory.data() + kRecordsOffset +
                                          static_cast<std::size_t>(rank) * kRecordBytes);
}

std::byte* HostGroup::messages() const {
  return memory_->memory.data() + kRecordsOffset +
         round_up(static_cast<std::size_t>(size_) * kRecordBytes);
}

int HostGroup::name(int rank) const {
  return names_.empty() ? rank : names_[static_cast<std::size_t>(rank)];
}

void HostGroup::join() {
  for (const int core : available_cores()) {
    if (core >= kCoresInMask) continue;
    record(rank_).cores[core / 64] |= std::uint64_t{1} << (core % 64);
  }
  if (const auto status = process_status(::getpid())) record(rank_).start_time = status->start_time;
  set_state(MemberState::kPresent);
}

// If there are more ranks than cores, a late rank needs the core on which this one would spin. A
// launcher may have given each rank its own core, so the cores of all ranks are counted together.
int HostGroup::spins() const {
  int cores = 0;
  for (int word = 0; word < kCoresInMask / 64; ++word) {
    std::uint64_t any = 0;
    for (int rank = 0; rank < size_; ++rank) any |= record(rank).cores[word];
    cores += std::popcount(any);
  }
  if (const auto quota = cpu_quota()) cores = std::min(cores, static_cast<int>(*quota + 0.999));
  return size_ <= cores ? kSpins : 0;
}

void HostGroup::set_state(MemberState state) {
  MemberRecord& own = record(rank_);
  own.pid = ::getpid();
  own.state = static_cast<std::uint32_t>(state);
  wake_all(own.arrivals);
}

MemberState HostGroup::state(int rank) const {
  return static_cast<MemberState>(record(rank).state.load());
}

int HostGroup::pid(int rank) const {
  return record(rank).pid;
}

void HostGroup::set_progress(std::int64_t epoch, std::int64_t batch) {
  MemberRecord& own = record(rank_);
  own.epoch.store(epoch, std::memory_order_relaxed);
  own.batch.store(batch, std::memory_order_relaxed);
}

std::string HostGroup::progress(int rank) const {
  const MemberRecord& other = record(rank);
  if (other.epoch == 0) return "";
  return fmt::format(" (in epoch {}, batch {})", other.epoch.load(), other.batch.load());
}

std::uint64_t HostGroup::word(int rank) const {
  return record(rank).word[meetings_ & 1].load(std::memory_order_relaxed);
}

void HostGroup::meet(const CollectiveCall& call) {
  check();
  MemberRecord& own = record(rank_);
  const std::uint32_t turn = (meetings_ + 1) & 1;
  own.what[turn].store(packed(call), std::memory_order_relaxed);
  own.word[turn].store(call.word, std::memory_order_relaxed);
  own.kind[turn].store(call.kind, std::memory_order_relaxed);
  const int core = ::sched_getcpu();
  own.core.store(core, std::memory_order_relaxed);
  ++meetings_;
  // Sequentially consistent: a sleeper increments `sleepers` and then reads `arrivals` again, so
  // either it sees this store or the next line sees the sleeper.
  own.arrivals.store(meetings_);
  if (own.sleepers.load() != 0) wake_all(own.arrivals);
  WaitTimes wait_times;
  for (int i = 1; i < size_; ++i) {
    const int other = (rank_ + i) % size_;
    if (arrived(other)) continue;
    // A rank that last ran on this core cannot arrive while this rank keeps the core busy.
    const bool spins = record(other).core.load(std::memory_order_relaxed) != core;
    for (int spin = 0; !arrived(other); ++spin) {
      if (spins && spin < spins_) {
        pause_briefly();
      } else {
        sleep_until_arrival(other, call, wait_times);
      }
    }
  }
  if (wait_times.told) wait_listener_({});
  if (meetings_ == 1) spins_ = spins();  // now all ranks have written their cores
  compare(call);
}

bool HostGroup::arrived(int rank) const {
  return static_cast<std::int32_t>(record(rank).arrivals.load() - meetings_) >= 0;
}

void HostGroup::sleep_until_arrival(int rank, const CollectiveCall& call, WaitTimes& wait_times) {
  MemberRecord& other = record(rank);
  struct Counted {
    explicit Counted(std::atomic<std::uint32_t>& count) : count(count) { ++count; }
    ~Counted() { --count; }
    std::atomic<std::uint32_t>& count;
  } const counted(other.sleepers);
  while (true) {
    const std::uint32_t seen = other.arrivals.load();
    if (static_cast<std::int32_t>(seen - meetings_) >= 0) return;
    check();
    const auto start = Clock::now();
    const timespec tick{.tv_sec = 0, .tv_nsec = kCheckInterval.count() * 1'000'000};
    futex(other.arrivals, FUTEX_WAIT, seen, &tick);
    if (arrived(rank)) return;
    // Each turn counts at most two ticks: if this process was stopped itself (Ctrl-Z), that time
    // must not count against the other ranks.
    count(wait_times, std::min<std::chrono::nanoseconds>(Clock::now() - start, 2 * kCheckInterval));
    check_for_gone_ranks(wait_times);
    if (wait_times.waited >= timeout_ || wait_times.alone / kAloneLimits >= timeout_)
      time_out(call, wait_times);
  }
}

std::vector<int> HostGroup::missing() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < size_; ++rank) {
    if (!arrived(rank)) ranks.push_back(rank);
  }
  return ranks;
}

void HostGroup::count(WaitTimes& wait_times, std::chrono::nanoseconds waited) {
  wait_times.total += waited;
  LateReason late_reason = LateReason::kAlone;
  for (const int rank : missing()) {
    // The smallest reason of all missing ranks counts, and a stopped process has none.
    auto excuse = this->late_reason(rank);
    if (excuse != LateReason::kNone && is_stopped(rank)) excuse = LateReason::kNone;
    late_reason = std::min(late_reason, excuse);
  }
  if (late_reason == LateReason::kNone) wait_times.waited += waited;
  if (late_reason == LateReason::kAlone) wait_times.alone += waited;
  if (!wait_times.told && wait_times.total >= long_wait(timeout_)) tell_of_wait(wait_times);
}

bool HostGroup::is_stopped(int rank) const {
  const auto status = process_status(pid(rank));
  return status && status->state == 'T';
}

void HostGroup::tell_of_wait(WaitTimes& wait_times) {
  if (!wait_listener_) return;
  wait_times.told = true;
  std::vector<int> late;
  for (const int rank : missing()) late.push_back(name(rank));
  wait_listener_(late);
}

HostGroup::LateReason HostGroup::set_late_reason(LateReason late_reason) {
  return static_cast<LateReason>(
      record(rank_).late_reason.exchange(static_cast<std::uint32_t>(late_reason)));
}

HostGroup::LateReason HostGroup::late_reason(int rank) const {
  return static_cast<LateReason>(record(rank).late_reason.load());
}

void HostGroup::set_wait_listener(std::function<void(const std::vector<int>&)> listener) {
  wait_listener_ = std::move(listener);
}

void HostGroup::check_for_gone_ranks(WaitTimes& wait_times) {
  for (int rank = 0; rank < size_; ++rank) {
    // is_gone() must be checked before arrived(): a rank may arrive and then leave.
    if (rank == rank_ || !is_gone(rank) || arrived(rank)) continue;
    // The process that started this rank knows how it ended, and reports that within kReportTime.
    if (!wait_times.missed) wait_times.missed = Clock::now();
    if (Clock::now() - *wait_times.missed < kReportTime) return;
    if (state(rank) == MemberState::kLeft) {
      fail(rank, "left before the others were done");
    } else {
      fail(rank, kProcessEnded, FailureKind::kLost);
    }
    return;
  }
}

void HostGroup::check_processes() {
  check();
  const auto now = Clock::now();
  if (now - looked_ < kLookInterval) return;
  looked_ = now;
  for (int rank = 0; rank < size_; ++rank) {
    // A rank that left was done with what this rank waits for. Its state is read last: it may leave
    // now.
    if (rank == rank_ || !is_gone(rank) || state(rank) == MemberState::kLeft) continue;
    if (!missed_) missed_ = now;
    if (now - *missed_ < kReportTime) return;  // as in check_for_gone_ranks()
    fail(rank, kProcessEnded, FailureKind::kLost);
    check();
  }
}

bool HostGroup::is_gone(int rank) {
  if (state(rank) == MemberState::kEmpty) return false;
  if (state(rank) == MemberState::kLeft) return true;
  std::optional<PeerProcess>& peer = peers_[static_cast<std::size_t>(rank)];
  if (!peer) peer.emplace(pid(rank), record(rank).start_time);
  return peer->has_ended();
}

std::string HostGroup::describe(std::uint64_t what, std::uint32_t kind) const {
  const auto operation = static_cast<Operation>(what >> 56);
  const std::uint64_t detail = what & ((std::uint64_t{1} << 56) - 1);
  std::string text(name_of(operation));
  if (detail != 0) text += fmt::format(" of {} bytes", detail);
  const std::string more = describe_kind_ ? describe_kind_(operation, kind) : "";
  return more.empty() ? text : fmt::format("{} ({})", text, more);
}

void HostGroup::compare(const CollectiveCall& call) const {
  const std::uint64_t mine = packed(call);
  for (int rank = 0; rank < size_; ++rank) {
    const std::uint64_t theirs = record(rank).what[meetings_ & 1].load(std::memory_order_relaxed);
    const std::uint32_t kind = record(rank).kind[meetings_ & 1].load(std::memory_order_relaxed);
    if (theirs == mine && kind == call.kind) continue;
    throw CommError("rank {} called '{}', rank {}{} called '{}': all ranks must do the same",
                    name(rank_), describe(mine, call.kind), name(rank), progress(rank),
                    describe(theirs, kind));
  }
}

void HostGroup::time_out(const CollectiveCall& call, const WaitTimes& wait_times) {
  std::vector<int> present, missing;
  std::optional<int> culprit;
  for (int rank = 0; rank < size_; ++rank) {
    const bool here = arrived(rank);
    (here ? present : missing).push_back(name(rank));
    if (!here && !culprit) culprit = rank;
  }
  if (!culprit) return;  // the last rank has just arrived
  const std::string reason =
      fmt::format("{}: waited {}: {} arrived, {} did not", describe(packed(call), call.kind),
                  format_duration(wait_times.total), list_ranks(present), list_ranks(missing));
  if (!fail(*culprit, reason, FailureKind::kHang)) check();
  throw CommError(describe_failure(name(*culprit), progress(*culprit), reason));
}

bool HostGroup::fail(int rank, std::string_view reason, FailureKind kind) noexcept {
  const std::lock_guard lock(failing_);
  std::uint32_t none = header_->failed.load();
  if (none != 0) return false;
  MemberRecord& own = record(rank_);
  const std::size_t length = std::min(reason.size(), kReasonBytes - 1);
  std::memcpy(own.reason, reason.data(), length);
  own.reason[length] = '\0';
  own.failure_kind = kind;
  own.failure_epoch = record(rank).epoch;
  own.failure_batch = record(rank).batch;
  const auto failed =
      (static_cast<std::uint32_t>(rank) << 16) | static_cast<std::uint32_t>(rank_ + 1);
  if (!header_->failed.compare_exchange_strong(none, failed)) return false;
  for (int i = 0; i < size_; ++i) wake_all(record(i).arrivals);
  return true;
}

std::optional<RankFailure> HostGroup::failure() const {
  const std::uint32_t failed = header_->failed.load();
  if (failed == 0) return std::nullopt;
  const MemberRecord& reporter = record(static_cast<int>(failed & 0xffff) - 1);
  return RankFailure{.rank = static_cast<int>(failed >> 16),
                     .reason = reporter.reason,
                     .kind = reporter.failure_kind,
                     .epoch = reporter.failure_epoch,
                     .batch = reporter.failure_batch};
}

std::optional<RankFailure> HostGroup::named_failure() const {
  auto failed = failure();
  if (failed) failed->rank = name(failed->rank);
  return failed;
}

void HostGroup::check() const {
  if (header_->failed.load(std::memory_order_relaxed) == 0) return;
  const auto failed = failure();
  throw WorkerError(describe_failure(name(failed->rank), progress(failed->rank), failed->reason));
}

}  // namespace lockstep::process

#include "lockstep/comm/c10d.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <sstream>
#include <thread>

#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/rendezvous_store.h"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Up to this size, one exchange of everything is faster than two exchanges of parts.
constexpr std::size_t kSmallBytes = 32 * 1024;

// Added to the process group's own time limits, so that our time limits are reached first. Our
// messages say more.
constexpr milliseconds kGroupTimeoutMargin(10'000);
// How long to wait for the report of a failed rank after the process group has thrown.
constexpr milliseconds kFailureReportTime(1000);
// How long to wait until the process that forked a rank reports how the rank ended.
constexpr milliseconds kForkerReportTime(300);
// A rank that has sent nothing for this long is taken to be stopped or dead.
constexpr milliseconds kSilenceLimit(1000);
// How often a rank that waits checks the other ranks.
constexpr milliseconds kCheckInterval(20);

// The group's threads may use an array after an error was thrown: it must own its memory.
torch::Tensor room(std::size_t bytes) {
  return torch::empty({static_cast<std::int64_t>(bytes)}, torch::kUInt8);
}

std::byte* data_of(const torch::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}

// "all_reduce of 400 bytes (sum of Float)": what all ranks must agree on.
std::string describe(std::string_view operation, std::size_t bytes, std::string_view kind = "") {
  std::string text(operation);
  if (bytes > 0) text += fmt::format(" of {} bytes", bytes);
  return kind.empty() ? text : fmt::format("{} ({})", text, kind);
}

// A message ends with a tag, a hash of the description of its collective. A process group compares
// nothing: two different collectives with messages of one length would accept each other's bytes.
constexpr std::size_t kTagBytes = sizeof(std::uint64_t);

std::uint64_t tag_of(std::string_view what) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : what) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

void put_tag(std::string_view what, std::byte* to) {
  const std::uint64_t tag = tag_of(what);
  std::memcpy(to, &tag, kTagBytes);
}

bool has_tag(std::string_view what, const std::byte* at) {
  const std::uint64_t tag = tag_of(what);
  return std::memcmp(at, &tag, kTagBytes) == 0;
}

torch::Tensor message_room(std::size_t bytes) {
  return room(bytes + kTagBytes);
}

torch::Tensor message_of(const void* data, std::size_t bytes) {
  const torch::Tensor message = message_room(bytes);
  if (bytes > 0) std::memcpy(message.data_ptr(), data, bytes);
  return message;
}

// The state of a rank that the other ranks see.
struct Status {
  std::uint64_t operation = 0;  // the number of the group's current operation
  std::string what;             // "" before the group's start
  bool alone = false;           // does work that the other ranks take no part in
  std::string progress;

  std::string text() const {
    return fmt::format("{}\n{}\n{}\n{}", operation, what, alone ? "alone" : "", progress);
  }
  static Status parse(const std::string& text) {
    std::istringstream lines(text);
    std::string operation, alone;
    Status status;
    std::getline(lines, operation);
    std::getline(lines, status.what);
    std::getline(lines, alone);
    std::getline(lines, status.progress);
    status.operation = std::strtoull(operation.c_str(), nullptr, 10);
    status.alone = !alone.empty();
    return status;
  }
};

// Process groups that are broken. The destructor of a group waits for the group's operations, and
// an operation may never end. A thread that runs the destructor might outlive the process's static
// objects. So broken groups are kept here. Whenever a group is made or given up, those whose
// operations have ended by the group's own time limit are destroyed. The rest end with the process.
class BrokenGroups {
 public:
  using Pending = c10::intrusive_ptr<c10d::Work>;

  static void keep(c10::intrusive_ptr<ProcessGroup> group, Pending pending) {
    const std::lock_guard lock(mutex());
    groups().push_back(
        {.group = std::move(group), .pending = std::move(pending), .owner = ::getpid()});
  }

  static void destroy_ended() {
    std::vector<Broken> ended;
    const std::lock_guard lock(mutex());
    std::erase_if(groups(), [&](Broken& broken) {
      // A forked process has the groups of its parent but not their threads, and a destructor would
      // wait for these threads for ever.
      if (broken.owner != ::getpid()) return false;
      if (broken.pending && !broken.pending->isCompleted()) return false;
      ended.push_back(std::move(broken));
      return true;
    });
  }

 private:
  struct Broken {
    c10::intrusive_ptr<ProcessGroup> group;
    Pending pending;
    pid_t owner;  // the process that made it
  };
  // These two objects are never destroyed.
  static std::mutex& mutex() {
    static auto* const one = new std::mutex;
    return *one;
  }
  static std::vector<Broken>& groups() {
    static auto* const all = new std::vector<Broken>;
    return *all;
  }
};

}  // namespace

// The process group, and what to do when it does not answer.
class C10d::Group {
 public:
  Group(const C10dOptions& options, std::shared_ptr<rendezvous::Rendezvous> rendezvous,
        std::vector<int> world_ranks)
      : backend_(options.backend),
        timeout_(options.timeout),
        host_group_(options.host_group),
        inside_(options.inside),
        rendezvous_(std::move(rendezvous)),
        world_ranks_(std::move(world_ranks)),
        rank_(options.topology.rank) {
    const auto store = c10::make_intrusive<RendezvousStore>(
        rendezvous_, options.group + "/" + options.backend + "/", timeout_);
    BrokenGroups::destroy_ended();
    status_.what = "start";
    publish();
    guarded([&] {
      start(store, {.backend = backend_,
                    .address = options.address,
                    .rank = rank_,
                    .size = options.topology.world_size,
                    .timeout = group_timeout()});
    });
  }

  ~Group() {
    if (broken_ && group_) BrokenGroups::keep(std::move(group_), std::move(work_));
    BrokenGroups::destroy_ended();
  }

  const std::string& backend() const { return backend_; }
  rendezvous::Rendezvous& rendezvous() { return *rendezvous_; }

  int world_rank(int rank) const { return world_ranks_[static_cast<std::size_t>(rank)]; }

  // Called if another rank's message belongs to another collective. Throws, and names that
  // collective if the rank's status arrives in time.
  [[noreturn]] void refuse(int rank) {
    broken_ = true;
    for (const auto start = Clock::now(); Clock::now() - start < kFailureReportTime;
         std::this_thread::sleep_for(milliseconds(10))) {
      check();
      compare();
    }
    throw CommError(
        "rank {} called '{}', rank {} called something else: all ranks must do the same",
        own_world_rank(), status_.what, world_rank(rank));
  }

  // Starts an operation and waits for it. Checks the other ranks meanwhile.
  template <typename Start>
  void run(const std::string& what, const Start& start) {
    check();
    ++status_.operation;
    status_.what = what;
    publish();
    guarded([&] {
      work_ = start(*group_);
      await();
      work_->wait();
      work_.reset();
    });
  }

  void check() {
    if (host_group_ != nullptr && host_group_->failure()) {
      broken_ = true;
      host_group_->check();
    }
    const auto failure = rendezvous_->failure();
    if (!failure) return;
    broken_ = true;
    for (const auto start = Clock::now();
         host_group_ != nullptr && Clock::now() - start < kForkerReportTime;
         std::this_thread::sleep_for(milliseconds(1))) {
      host_group_->check();
    }
    throw WorkerError(process::describe_failure(failure->rank, status_of(failure->rank).progress,
                                                failure->reason));
  }

  void set_alone(bool alone) {
    status_.alone = alone;
    publish();
  }

  process::HostGroup* host_group() const { return host_group_; }
  void set_broken() { broken_ = true; }
  void set_progress(std::int64_t epoch, std::int64_t batch) {
    status_.progress = fmt::format(" (in epoch {}, batch {})", epoch, batch);
    if (host_group_ != nullptr) host_group_->set_progress(epoch, batch);
  }

 private:
  // From tell() until the object is destroyed, the ranks of this host can see that this rank waits
  // for other hosts.
  class WaitScope {
   public:
    explicit WaitScope(process::HostGroup* inside) : inside_(inside) {}
    ~WaitScope() {
      if (told_) inside_->set_late_reason(before_);
    }
    WaitScope(const WaitScope&) = delete;
    WaitScope& operator=(const WaitScope&) = delete;

    void tell() {
      if (inside_ == nullptr || told_) return;
      told_ = true;
      before_ = inside_->set_late_reason(process::HostGroup::LateReason::kOtherHosts);
    }

   private:
    process::HostGroup* inside_;
    bool told_ = false;
    process::HostGroup::LateReason before_ = process::HostGroup::LateReason::kNone;
  };

  // Waits for the operation. Checks the other ranks meanwhile.
  void await() {
    WaitScope scope(inside_);
    auto looked = Clock::now();
    Clock::duration waited{0}, alone{0};
    for (int turns = 0; !work_->isCompleted(); ++turns) {
      if (turns < 200) {
        std::this_thread::yield();
        continue;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(turns < 2000 ? 20 : 200));
      const auto now = Clock::now();
      if (now - looked < kCheckInterval) continue;
      scope.tell();
      (waits_for_lone_work() ? alone : waited) += counted(now - looked);
      looked = now;
      check();
      compare();
      if (waited > timeout_ || alone / process::HostGroup::kAloneLimits > timeout_) {
        time_out(waited + alone);
      }
    }
  }

  // Whether every late rank does work that the others take no part in, and still sends its status.
  bool waits_for_lone_work() const {
    const auto peers = rendezvous_->peers();
    bool any = false;
    for (const int world_rank : world_ranks_) {
      const auto& peer = peers[static_cast<std::size_t>(world_rank)];
      const Status theirs = Status::parse(peer.status);
      if (world_rank == own_world_rank() || theirs.operation >= status_.operation) continue;
      if (!theirs.alone || peer.silent > kSilenceLimit) return false;
      any = true;
    }
    return any;
  }

  // A turn of a wait counts for 10 * kCheckInterval at most: if it took longer, this process was
  // stopped itself, and no other rank was late.
  static Clock::duration counted(Clock::duration turn) {
    return std::min<Clock::duration>(turn, 10 * kCheckInterval);
  }

  milliseconds group_timeout() const {
    constexpr milliseconds kForever = std::chrono::hours(1000);
    return kGroupTimeoutMargin + process::HostGroup::kAloneLimits * std::min(timeout_, kForever);
  }

  // The process group has one time limit for its start and its operations, and that of operations
  // is too long for a start. So another thread starts it, which is left behind if another rank
  // fails or our time limit is over.
  void start(const c10::intrusive_ptr<RendezvousStore>& store, GroupOptions options) {
    const auto made = std::make_shared<std::promise<c10::intrusive_ptr<ProcessGroup>>>();
    auto future = made->get_future();
    std::thread([made, store, options = std::move(options)] {
      try {
        made->set_value(make_process_group(store, options));
      } catch (...) {
        made->set_exception(std::current_exception());
      }
    }).detach();
    Clock::duration waited{};
    for (auto looked = Clock::now();
         future.wait_for(kCheckInterval) != std::future_status::ready;) {
      const auto now = Clock::now();
      waited += counted(now - looked);
      looked = now;
      check();
      if (waited < timeout_) continue;
      if (!arrivals().missing.empty()) time_out(waited);
      throw CommError(
          "{}: start: no connection to the other ranks after {}; check that no firewall stops "
          "connections between the hosts, and choose another network with LOCKSTEP_INTERFACE",
          backend_, format_duration(waited));
    }
    try {
      group_ = future.get();
    } catch (const std::exception&) {
      check();
      // The store has our time limit, too, and may be the first to reach it.
      const bool was_late = waited + 10 * kCheckInterval >= timeout_;
      if (was_late && !arrivals().missing.empty()) time_out(waited);
      throw;
    }
  }

  void publish() { rendezvous_->set_status(status_.text()); }

  // An exception of the process group says little. The report of the rank that failed says more,
  // and it arrives shortly after.
  void guarded(const std::function<void()>& action) {
    try {
      action();
    } catch (const Error&) {
      broken_ = true;
      check();
      throw;
    } catch (const std::exception& error) {
      broken_ = true;
      for (const auto start = Clock::now(); Clock::now() - start < kFailureReportTime;
           std::this_thread::sleep_for(milliseconds(10))) {
        check();
        compare();
      }
      const std::string text = error.what();
      throw CommError("{}: {}: {}", backend_, status_.what, text.substr(0, text.find('\n')));
    }
  }

  Status status_of(int world_rank) const {
    return Status::parse(rendezvous_->peers()[static_cast<std::size_t>(world_rank)].status);
  }
  int own_world_rank() const { return world_rank(rank_); }

  // Throws if another rank called a different collective, or has left the run.
  void compare() const {
    const auto peers = rendezvous_->peers();
    for (const int world_rank : world_ranks_) {
      if (world_rank == own_world_rank()) continue;
      const auto& peer = peers[static_cast<std::size_t>(world_rank)];
      const Status theirs = Status::parse(peer.status);
      // A rank whose status has not arrived yet has not called a different collective.
      if (theirs.operation == status_.operation && !theirs.what.empty() &&
          theirs.what != status_.what) {
        throw CommError("rank {} called '{}', rank {}{} called '{}': all ranks must do the same",
                        own_world_rank(), status_.what, world_rank, theirs.progress, theirs.what);
      }
      if (peer.left && theirs.operation < status_.operation) {
        throw WorkerError("rank {}{}: left before the others were done", world_rank,
                          theirs.progress);
      }
    }
  }

  struct Arrivals {
    std::vector<int> arrived, missing;
  };

  // Which ranks have called the current operation.
  Arrivals arrivals() const {
    const auto peers = rendezvous_->peers();
    Arrivals all;
    auto& [arrived, missing] = all;
    for (const int world_rank : world_ranks_) {
      const auto& peer = peers[static_cast<std::size_t>(world_rank)];
      const Status theirs = Status::parse(peer.status);
      const bool here =
          world_rank == own_world_rank() || (peer.silent < kSilenceLimit && !theirs.what.empty() &&
                                             theirs.operation >= status_.operation);
      if (here) {
        arrived.push_back(world_rank);
        continue;
      }
      // If a rank waits for other ranks of its host, those are the missing ones.
      std::istringstream late(peer.silent < kSilenceLimit ? peer.waits_for : "");
      const auto before = missing.size();
      for (int rank = 0; late >> rank;) missing.push_back(rank);
      if (missing.size() == before) missing.push_back(world_rank);
    }
    return all;
  }

  [[noreturn]] void time_out(Clock::duration waited) {
    const auto [arrived, missing] = arrivals();
    const std::string reason =
        fmt::format("{}: waited {}: {} arrived, {} did not", status_.what, format_duration(waited),
                    process::list_ranks(arrived),
                    missing.empty() ? "but what they sent" : process::list_ranks(missing));
    const std::string text =
        missing.empty() ? fmt::format("{}: {}", backend_, reason)
                        : process::describe_failure(missing.front(),
                                                    status_of(missing.front()).progress, reason);
    if (!missing.empty()) report_hang(missing.front(), reason);
    rendezvous_->fail(text);
    throw CommError(text);
  }

  void report_hang(int world_rank, const std::string& reason) {
    for (int rank = 0; host_group_ != nullptr && rank < host_group_->size(); ++rank) {
      if (host_group_->name(rank) != world_rank) continue;
      host_group_->fail(rank, reason, process::FailureKind::kHang);
    }
  }

  std::string backend_;
  milliseconds timeout_;
  process::HostGroup* host_group_;
  process::HostGroup* inside_;
  std::shared_ptr<rendezvous::Rendezvous> rendezvous_;
  std::vector<int> world_ranks_;
  int rank_;
  c10::intrusive_ptr<ProcessGroup> group_;
  BrokenGroups::Pending work_;  // the operation that is waited for
  Status status_;
  bool broken_ = false;
};

C10d::C10d(const C10dOptions& options, std::shared_ptr<rendezvous::Rendezvous> rendezvous,
           std::vector<int> world_ranks)
    : Communicator(options.topology),
      group_(std::make_unique<Group>(options, std::move(rendezvous), std::move(world_ranks))) {}

C10d::~C10d() = default;

std::string C10d::name() const {
  return group_->backend();
}

std::optional<process::RankFailure> C10d::failure() const {
  process::HostGroup* const forked = group_->host_group();
  return forked != nullptr ? forked->named_failure() : std::nullopt;
}

void C10d::do_abort(std::string_view reason, process::FailureKind kind) noexcept {
  group_->set_broken();
  // First the ranks of this host: the group keeps the kind of the failure.
  if (process::HostGroup* const forked = group_->host_group()) {
    forked->fail(forked->rank(), reason, kind);
  }
  try {
    group_->rendezvous().fail(std::string(reason));
  } catch (...) {
    // The other ranks then notice that this rank has become silent.
  }
}

void C10d::check() {
  group_->check();
}

void C10d::set_progress(std::int64_t epoch, std::int64_t batch) {
  group_->set_progress(epoch, batch);
}

void C10d::set_alone(bool alone) {
  group_->set_alone(alone);
}

std::vector<torch::Tensor> C10d::exchange(const std::string& what, const torch::Tensor& message) {
  const std::size_t bytes = message.nbytes() - kTagBytes;
  put_tag(what, data_of(message) + bytes);
  std::vector<torch::Tensor> inputs{message};
  std::vector<std::vector<torch::Tensor>> outputs(1);
  for (int i = 0; i < size(); ++i) outputs[0].push_back(torch::empty_like(inputs[0]));
  group_->run(what, [&](ProcessGroup& group) { return group.allgather(outputs, inputs); });
  for (int i = 0; i < size(); ++i) {
    const torch::Tensor& tensor = outputs[0][static_cast<std::size_t>(i)];
    if (!has_tag(what, data_of(tensor) + bytes)) group_->refuse(i);
  }
  return outputs[0];
}

void C10d::do_barrier() {
  exchange(describe("barrier", 0), message_room(0));
}

std::vector<std::uint64_t> C10d::do_vote(std::uint64_t word) {
  return exchange_words(describe("vote", sizeof word), word);
}

std::vector<std::uint64_t> C10d::do_announce(std::uint64_t tag) {
  return exchange_words("collective on GPUs", tag);
}

std::vector<std::uint64_t> C10d::exchange_words(const std::string& what, std::uint64_t word) {
  std::vector<std::uint64_t> words;
  for (const auto& bytes : exchange(what, message_of(&word, sizeof word))) {
    std::memcpy(&words.emplace_back(), bytes.data_ptr(), sizeof word);
  }
  return words;
}

void C10d::do_broadcast(std::byte* data, const Elements& elements, int root) {
  const std::size_t bytes = elements.bytes();
  if (bytes == 0) return;
  const std::string what = describe(
      "broadcast", bytes,
      fmt::format("{} from rank {}", c10::toString(elements.type), group_->world_rank(root)));
  const bool sends = rank() == root;
  const torch::Tensor message = message_room(bytes);
  if (sends) {
    std::memcpy(message.data_ptr(), data, bytes);
    put_tag(what, data_of(message) + bytes);
  }
  std::vector<torch::Tensor> tensors{message};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  group_->run(what, [&](ProcessGroup& group) { return group.broadcast(tensors, options); });
  if (sends) return;
  if (!has_tag(what, data_of(message) + bytes)) group_->refuse(root);
  std::memcpy(data, message.data_ptr(), bytes);
}

std::vector<std::string> C10d::do_gather(std::string_view mine, std::optional<int> root) {
  std::vector<std::uint64_t> lengths;
  const std::uint64_t own = mine.size();
  const std::string kind =
      root ? fmt::format("to rank {}", group_->world_rank(*root)) : "to all ranks";
  for (const auto& bytes :
       exchange(describe("gather", sizeof own, kind), message_of(&own, sizeof own))) {
    std::memcpy(&lengths.emplace_back(), bytes.data_ptr(), sizeof own);
  }
  const std::uint64_t longest = *std::ranges::max_element(lengths);
  std::vector<std::string> all(lengths.size());
  if (longest == 0) return all;
  // The process group gathers tensors of one length, so shorter messages are padded.
  const torch::Tensor padded = message_room(longest);
  if (own > 0) std::memcpy(padded.data_ptr(), mine.data(), own);
  std::vector<torch::Tensor> gathered;
  if (root) {
    std::vector<torch::Tensor> inputs{padded};
    std::vector<std::vector<torch::Tensor>> outputs;
    if (*root == rank()) {
      outputs.emplace_back();
      for (int i = 0; i < size(); ++i) outputs[0].push_back(torch::empty_like(inputs[0]));
    }
    c10d::GatherOptions options;
    options.rootRank = *root;
    const std::string what = describe("gather", longest, kind);
    put_tag(what, data_of(padded) + longest);
    group_->run(what, [&](ProcessGroup& group) { return group.gather(outputs, inputs, options); });
    if (!outputs.empty()) gathered = outputs[0];
    for (std::size_t i = 0; i < gathered.size(); ++i) {
      if (!has_tag(what, data_of(gathered[i]) + longest)) group_->refuse(static_cast<int>(i));
    }
  } else {
    gathered = exchange(describe("gather", longest, kind), padded);
  }
  for (std::size_t i = 0; i < gathered.size(); ++i) {
    const torch::Tensor& bytes = gathered[i];
    all[i].assign(static_cast<const char*>(bytes.data_ptr()), lengths[i]);
  }
  return all;
}

std::string C10d::describe_reduce(const Reduction& reduction) {
  return describe(reduction.gradients ? "reduction of gradients" : "all_reduce",
                  reduction.elements.bytes(),
                  describe_reduction(reduction.elements.type, reduction.op));
}

void C10d::do_reduce(const Reduction& reduction, std::span<std::byte* const> outputs) {
  if (reduction.elements.count == 0) return;
  if (reduction.elements.bytes() * reduction.plan.most <= kSmallBytes) {
    reduce_small(reduction, outputs);
  } else {
    reduce_by_parts(reduction, outputs);
  }
}

// Every rank receives all terms and sums all elements.
void C10d::reduce_small(const Reduction& reduction, std::span<std::byte* const> outputs) {
  const std::size_t bytes = reduction.elements.bytes();
  const torch::Tensor sent = message_room(reduction.plan.most * bytes);
  for (std::size_t i = 0; i < reduction.data.size(); ++i) {
    std::memcpy(data_of(sent) + i * bytes, reduction.data[i], bytes);
  }
  const auto received = exchange(describe_reduce(reduction), sent);
  std::vector<const void*> inputs;
  for (std::size_t r = 0; r < received.size(); ++r) {
    for (std::size_t i = 0; i < reduction.plan.nodes[r].size(); ++i) {
      inputs.push_back(data_of(received[r]) + i * bytes);
    }
  }
  const std::vector<void*> sums(outputs.begin(), outputs.end());
  reduction.plan.tree.reduce(inputs, sums, reduction.elements.count, reduction.elements.type,
                             reduction.op);
}

// Rank r sums elements [bound(r), bound(r + 1)) for all ranks.
void C10d::reduce_by_parts(const Reduction& reduction, std::span<std::byte* const> outputs) {
  const Elements& elements = reduction.elements;
  const std::size_t width = c10::elementSize(elements.type);
  const auto ranks = static_cast<std::size_t>(size());
  const auto me = static_cast<std::size_t>(rank());
  const auto bound = [&](std::size_t r) {
    return static_cast<std::size_t>(elements.count) * r / ranks * width;  // in bytes
  };
  const auto bytes_of = [&](std::size_t r) { return bound(r + 1) - bound(r); };

  // This rank sends each part of its nodes to the rank that sums the part, and receives its own
  // part of all nodes. Each message ends with a tag.
  const std::string what = describe_reduce(reduction);
  std::vector<std::int64_t> sending(ranks), receiving(ranks);
  std::vector<std::size_t> starts(ranks);  // where each rank's message begins
  std::size_t total = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    sending[r] = static_cast<std::int64_t>(reduction.data.size() * bytes_of(r) + kTagBytes);
    receiving[r] =
        static_cast<std::int64_t>(reduction.plan.nodes[r].size() * bytes_of(me) + kTagBytes);
    starts[r] = total;
    total += static_cast<std::size_t>(receiving[r]);
  }
  const torch::Tensor sent = room(reduction.data.size() * elements.bytes() + ranks * kTagBytes);
  std::byte* at = data_of(sent);
  for (std::size_t r = 0; r < ranks; ++r) {
    for (const void* data : reduction.data) {
      std::memcpy(at, static_cast<const std::byte*>(data) + bound(r), bytes_of(r));
      at += bytes_of(r);
    }
    put_tag(what, at);
    at += kTagBytes;
  }
  torch::Tensor leaving = sent;
  torch::Tensor arriving = room(total);
  group_->run(what, [&](ProcessGroup& group) {
    return group.alltoall_base(arriving, leaving, receiving, sending);
  });
  const torch::Tensor& received = arriving;

  std::vector<const void*> inputs;
  for (std::size_t r = 0; r < ranks; ++r) {
    for (std::size_t i = 0; i < reduction.plan.nodes[r].size(); ++i) {
      inputs.push_back(data_of(received) + starts[r] + i * bytes_of(me));
    }
    const std::size_t end = starts[r] + reduction.plan.nodes[r].size() * bytes_of(me);
    if (!has_tag(what, data_of(received) + end)) group_->refuse(static_cast<int>(r));
  }
  // The lengths of the parts differ by one element at most. All are sent with the length of the
  // longest and cut when they arrive.
  std::size_t longest = 0;
  for (std::size_t r = 0; r < ranks; ++r) longest = std::max(longest, bytes_of(r));
  std::vector<torch::Tensor> parts;
  std::vector<void*> sums;
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    sums.push_back(parts.emplace_back(message_room(longest)).data_ptr());
  }
  reduction.plan.tree.reduce(inputs, sums, static_cast<std::int64_t>(bytes_of(me) / width),
                             elements.type, reduction.op);
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    const auto gathered = exchange(what, parts[k]);
    for (std::size_t r = 0; r < ranks; ++r) {
      std::memcpy(outputs[k] + bound(r), data_of(gathered[r]), bytes_of(r));
    }
  }
}

}  // namespace lockstep::comm

#include "lockstep/comm/two_planes.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <map>
#include <thread>
#include <utility>

#include <fmt/ranges.h>
#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/base/warn.h"
#include "lockstep/process/watchdog.h"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Up to this size, one exchange of everything is faster than two exchanges of parts.
constexpr std::size_t kSmallMessage = 32 * 1024;

// How often a rank that waits for the data plane looks for failures.
constexpr milliseconds kLookInterval(20);
// How long to wait for the report of a failed rank after the data plane has thrown.
constexpr milliseconds kReportTime(1000);
// How long the data plane may take to end its work, if the time limit of the run is not shorter.
constexpr milliseconds kAbortTime(30'000);

std::uint64_t hash_of(std::string_view what) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : what) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// A result or an error, as a text for other ranks.
template <typename Make>
std::string attempt(const Make& make) {
  try {
    return fmt::format("+{}", make());
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return fmt::format("-{}", text.substr(0, text.find('\n')));
  }
}

torch::Tensor flat(const torch::Tensor& tensor) {
  return tensor.contiguous().view({-1});
}

// The part of the elements that a rank sums: all parts have one length, but the last ones may be
// shorter or empty. Parts begin at multiples of 128 bytes, because NCCL copies bytes one by one
// that are not aligned.
struct ElementParts {
  std::int64_t count = 0;
  int ranks = 1;
  std::int64_t element_size = 1;

  std::int64_t length() const {
    const std::int64_t step = std::max<std::int64_t>(1, 128 / element_size);
    const std::int64_t least = (count + ranks - 1) / ranks;
    return (least + step - 1) / step * step;
  }
  torch::Tensor of(const torch::Tensor& tensor, int rank) const {
    const std::int64_t begin = std::min(rank * length(), count);
    return tensor.narrow(0, begin, std::min(length(), count - begin));
  }
};

}  // namespace

SumOrder sum_order(const std::string& reduction) {
  if (reduction == "ordered") return SumOrder::kOrdered;
  if (reduction == "fast") return SumOrder::kFast;
  throw ConfigError("reduction: expected ordered or fast, got '{}'", reduction);
}

class TwoPlanes::Data final : public Communicator::DeviceCollectives {
 public:
  Data(const TwoPlanesOptions& options, Communicator& control)
      : options_(options), control_(control) {}
  // Without a failure there is no time limit: other ranks may come to this later, for example after
  // they have written files. After a failure they may not come at all. It may have been noticed by
  // a call that is not one of the data plane, for example a vote.
  ~Data() override {
    if (broken_ || plane_ == nullptr) return;
    if (has_failed()) {
      fail();
    } else {
      plane_->abort();
    }
  }

  // Whether the tensors of this device are not staged. Starts the plane if it is the first time.
  bool takes(const torch::Device& device) {
    if (staged_ || !options_.factory.takes(device)) return false;
    if (broken_) throw CommError("{}: cannot be used after an error", options_.factory.name());
    if (plane_ == nullptr) start(device);
    if (plane_ != nullptr && device != device_) {
      throw CommError("{}: was started on {}, got a tensor on {}; a rank has one device",
                      options_.factory.name(), device_->str(), device.str());
    }
    return plane_ != nullptr;
  }

  bool is_started() const { return started_ != nullptr; }
  std::string name() const { return options_.factory.name(); }

  // Any thread may call it: that of backward() does, while another one is in a collective.
  std::shared_ptr<StreamPoint> mark(const torch::Device& device) {
    DevicePlane* const plane = started_;
    return plane != nullptr && device == device_ && !broken_ ? plane->mark() : nullptr;
  }

  void reduce(const DeviceReduction& reduction) override {
    const std::size_t bytes =
        static_cast<std::size_t>(reduction.out.numel()) * c10::elementSize(reduction.type);
    const bool fast = options_.order == SumOrder::kFast && plane_->can_reduce(reduction.type);
    run({.what = fmt::format("{} of {} bytes on GPUs ({}, {}, {} terms)",
                             reduction.gradients ? "reduction of gradients" : "all_reduce", bytes,
                             describe_reduction(reduction.type, reduction.op),
                             fast ? "fast" : "ordered", reduction.plan.leaves),
         .sends = bytes > 0},
        reduction.after, [this, fast, reduction] {
          const torch::Tensor& out = reduction.out;
          const Nodes nodes = nodes_of(reduction);
          const bool in_place = out.is_contiguous() && out.scalar_type() == reduction.type;
          torch::Tensor sum =
              in_place ? out.view({-1})
                       : torch::empty({out.numel()}, out.options().dtype(reduction.type));
          if (fast) {
            reduce_fast(reduction, nodes, sum);
          } else if (sum.nbytes() * reduction.plan.most <= kSmallMessage) {
            reduce_at_once(reduction, nodes, sum);
          } else {
            reduce_by_parts(reduction, nodes, sum);
          }
          // By a tensor: CUDA would multiply by the reciprocal of a number, which is not rounded in
          // the same way.
          if (reduction.op == ReduceOp::kMean) {
            sum.div_(torch::full({}, control_.size(), sum.options()));
          }
          if (!in_place) torch::Tensor(out).copy_(sum.view(out.sizes()));
        });
  }

  void broadcast(const torch::Tensor& tensor, int root) override {
    run({.what = fmt::format("broadcast of {} bytes on GPUs ({} from rank {})", tensor.nbytes(),
                             c10::toString(tensor.scalar_type()), root),
         .sends = tensor.numel() > 0},
        nullptr, [this, tensor, root] {
          const torch::Tensor dense = tensor.contiguous();
          plane_->broadcast(dense, root);
          if (!dense.is_same(tensor)) torch::Tensor(tensor).copy_(dense);
        });
  }

  std::vector<torch::Tensor> gather(const torch::Tensor& tensor, std::optional<int> root) override {
    const std::string what =
        fmt::format("gather of {} on GPUs ({})", c10::toString(tensor.scalar_type()),
                    root ? fmt::format("to rank {}", *root) : "to all ranks");
    announce(what);
    // Every rank may have its own shape.
    const auto sizes = tensor.sizes();
    const auto shapes = control_.do_gather(
        {reinterpret_cast<const char*>(sizes.data()), sizes.size() * sizeof(std::int64_t)},
        std::nullopt);
    const bool receives = !root || *root == control_.rank();
    std::vector<torch::Tensor> all;
    for (int rank = 0; receives && rank < control_.size(); ++rank) {
      const std::string& bytes = shapes[static_cast<std::size_t>(rank)];
      std::vector<std::int64_t> shape(bytes.size() / sizeof(std::int64_t));
      if (!shape.empty()) std::memcpy(shape.data(), bytes.data(), bytes.size());
      all.push_back(torch::empty(shape, tensor.options()));
    }
    // The tensors that were made here belong to the current stream: the plane's stream waits for
    // it.
    run_announced({.what = what}, nullptr, [this, tensor, root, all] {
      const torch::Tensor mine = flat(tensor);
      std::vector<PeerTensor> sends, receives;
      for (int rank = 0; rank < control_.size(); ++rank) {
        if (rank == control_.rank()) continue;
        if (mine.numel() > 0 && (!root || *root == rank)) sends.push_back({rank, mine});
        if (all.empty()) continue;
        const torch::Tensor theirs = all[static_cast<std::size_t>(rank)].view({-1});
        if (theirs.numel() > 0) receives.push_back({rank, theirs});
      }
      if (!sends.empty() || !receives.empty()) plane_->exchange(sends, receives);
      if (!all.empty()) {
        torch::Tensor(all[static_cast<std::size_t>(control_.rank())]).copy_(tensor);
      }
    });
    return all;
  }

 private:
  using Nodes = std::vector<torch::Tensor>;

  struct Call {
    std::string what;   // describes the collective; must be the same on all ranks
    bool sends = true;  // false: there is nothing to send, only to agree on
  };

  // This rank's nodes of the sum.
  static Nodes nodes_of(const DeviceReduction& reduction) {
    Nodes terms;
    for (const auto& term : reduction.terms) terms.push_back(flat(term.to(reduction.type)));
    if (reduction.own == nullptr) return terms;
    Nodes nodes;
    for (const std::size_t first : reduction.own->first_inputs()) nodes.push_back(terms[first]);
    reduction.own->reduce_tensors(terms, nodes, reduction.op);
    return nodes;
  }

  void reduce_fast(const DeviceReduction& reduction, const Nodes& nodes, torch::Tensor sum) {
    if (nodes.empty()) sum.zero_();  // only sums may have fewer terms than ranks
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (i == 0 && nodes[i].data_ptr() != sum.data_ptr()) sum.copy_(nodes[i]);
      if (i > 0) sum.add_(nodes[i]);
    }
    plane_->all_reduce(sum, reduction.op);
  }

  // Every rank receives all nodes and sums all elements.
  void reduce_at_once(const DeviceReduction& reduction, const Nodes& nodes,
                      const torch::Tensor& sum) {
    const std::int64_t count = sum.numel();
    const auto most = static_cast<std::int64_t>(reduction.plan.most);
    const torch::Tensor all = torch::empty({control_.size() * most * count}, sum.options());
    const auto node_of = [&](int rank, std::size_t i) {
      return all.narrow(0, (rank * most + static_cast<std::int64_t>(i)) * count, count);
    };
    for (std::size_t i = 0; i < nodes.size(); ++i) node_of(control_.rank(), i).copy_(nodes[i]);
    plane_->all_gather(all.narrow(0, control_.rank() * most * count, most * count), all);
    Nodes inputs;
    for (int rank = 0; rank < control_.size(); ++rank) {
      const std::size_t theirs = reduction.plan.nodes[static_cast<std::size_t>(rank)].size();
      for (std::size_t i = 0; i < theirs; ++i) inputs.push_back(node_of(rank, i));
    }
    reduction.plan.tree.reduce_tensors(inputs, {sum}, reduction.op);
  }

  // Each rank sums one part of the elements for all ranks.
  void reduce_by_parts(const DeviceReduction& reduction, const Nodes& nodes,
                       const torch::Tensor& sum) {
    const ElementParts parts{
        .count = sum.numel(), .ranks = control_.size(), .element_size = sum.element_size()};
    const int me = control_.rank();
    const std::int64_t own = parts.of(sum, me).numel();
    const auto& theirs = reduction.plan.nodes;
    std::int64_t arriving = 0;
    for (const auto& of_rank : theirs) arriving += static_cast<std::int64_t>(of_rank.size()) * own;
    arriving -= static_cast<std::int64_t>(nodes.size()) * own;
    const torch::Tensor room = torch::empty({arriving}, sum.options());
    std::vector<PeerTensor> sends, receives;
    Nodes inputs;
    std::int64_t used = 0;
    for (int rank = 0; rank < control_.size(); ++rank) {
      for (std::size_t i = 0; i < nodes.size(); ++i) {
        const torch::Tensor part = parts.of(nodes[i], rank);
        if (rank == me) {
          inputs.push_back(part);
        } else if (part.numel() > 0) {
          sends.push_back({rank, part});
        }
      }
      for (std::size_t i = 0; rank != me && i < theirs[static_cast<std::size_t>(rank)].size();
           ++i) {
        inputs.push_back(room.narrow(0, used, own));
        if (own > 0) receives.push_back({rank, inputs.back()});
        used += own;
      }
    }
    if (!sends.empty() || !receives.empty()) plane_->exchange(sends, receives);

    // All parts are gathered with one length. If it does not divide the number of elements, there
    // is room for a part or more behind them.
    const bool fits = parts.count == parts.length() * parts.ranks;
    const torch::Tensor all =
        fits ? sum : torch::empty({parts.length() * parts.ranks}, sum.options());
    const torch::Tensor mine = all.narrow(0, me * parts.length(), parts.length());
    if (own > 0) reduction.plan.tree.reduce_tensors(inputs, {mine.narrow(0, 0, own)}, reduction.op);
    plane_->all_gather(mine, all);
    if (!fits) torch::Tensor(sum).copy_(all.narrow(0, 0, parts.count));
  }

  void run(const Call& call, const std::shared_ptr<StreamPoint>& after,
           const std::function<void()>& work) {
    announce(call.what);
    if (call.sends) run_announced(call, after, work);
  }

  // Gives the work to the plane and waits for its end.
  void run_announced(const Call& call, const std::shared_ptr<StreamPoint>& after,
                     const std::function<void()>& work) {
    guarded(call.what, [&] {
      // A kernel that is aborted may still write to the tensors, so they are kept after an error.
      pending_ = work;
      const auto end = plane_->run(after != nullptr ? after : plane_->mark(), [work] {
        const torch::NoGradGuard no_grad;
        work();
      });
      while (!end->reached()) poll();
      pending_ = {};
    });
  }

  // Throws if not all ranks announce the same collective.
  void announce(const std::string& what) {
    const FailScope fail_scope{*this};
    const std::uint64_t tag = hash_of(what);
    const auto tags = control_.do_announce(tag);
    if (std::ranges::all_of(tags, [tag](std::uint64_t theirs) { return theirs == tag; })) return;
    const auto texts = control_.do_gather(what, std::nullopt);
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
      if (texts[rank] == what) continue;
      throw CommError("rank {} called '{}', rank {} called '{}': all ranks must do the same",
                      control_.rank(), what, rank, texts[rank]);
    }
    throw CommError("'{}': another rank called something else with the same hash", what);
  }

  void start(const torch::Device& device) {
    const std::string kind = options_.factory.name();
    const std::string what = "start of " + kind;
    announce(what);
    if (const std::string problem = find_problem(device); !problem.empty()) {
      if (options_.required) {
        fail();
        throw ConfigError("backend: {}: {}", kind, problem);
      }
      if (control_.is_primary()) {
        const bool fast = options_.order == SumOrder::kFast;
        warn(fmt::format(
            "{}; tensors on GPUs are copied to the CPU and sent from there, which is "
            "slower{}",
            problem, fast ? "; reduction: fast has no effect: sums keep their order" : ""));
      }
      staged_ = true;
      return;
    }
    const std::string id = control_.broadcast_bytes(
        control_.is_primary() ? attempt([&] { return options_.factory.make_id(); }) : "");
    if (!id.starts_with('+')) {
      fail();
      throw CommError("{}: {}: rank 0: {}", kind, what, id.substr(1));
    }
    guarded(what, [&] {
      plane_ = options_.factory.make({.rank = control_.rank(),
                                      .size = control_.size(),
                                      .device = device,
                                      .id = id.substr(1),
                                      .poll = [this] { poll(); }});
      plane_->connect();
      device_ = device;
      started_ = plane_.get();
    });
  }

  // Why the ranks cannot have a data plane. Empty: they can. The same on all ranks.
  std::string find_problem(const torch::Device& device) {
    const auto devices = control_.do_gather(
        attempt([&] { return options_.factory.identity(device); }), std::nullopt);
    std::map<std::string, std::vector<int>> users;
    for (std::size_t i = 0; i < devices.size(); ++i) {
      if (devices[i].starts_with('-')) return fmt::format("rank {}: {}", i, devices[i].substr(1));
      users[devices[i]].push_back(static_cast<int>(i));
    }
    for (const auto& [identity, ranks] : users) {
      if (ranks.size() == 1) continue;
      return fmt::format(
          "{} use the same GPU ({}), and {} needs one GPU per rank: start as many "
          "workers as there are GPUs",
          process::list_ranks(ranks), identity.substr(1), options_.factory.name());
    }
    return "";
  }

  // One turn of a wait for the data plane.
  void poll() {
    if (++turns_ < 200) {
      std::this_thread::yield();
      return;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(turns_ < 2000 ? 20 : 200));
    const auto now = Clock::now();
    if (now - looked_ < kLookInterval) return;
    // If a turn took longer than this, the process itself was stopped, and nothing was late.
    waited_ += std::min<Clock::duration>(now - looked_, 10 * kLookInterval);
    looked_ = now;
    control_.check();
    if (plane_ != nullptr) plane_->check();
    if (waited_ > options_.timeout) time_out();
  }

  [[noreturn]] void time_out() {
    std::vector<int> ranks(static_cast<std::size_t>(control_.size()));
    for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i] = static_cast<int>(i);
    const std::string text =
        fmt::format("{}: {}: waited {}: {} arrived, but what they sent did not arrive at rank {}",
                    options_.factory.name(), what_, format_duration(waited_),
                    process::list_ranks(ranks), control_.rank());
    timed_out_ = true;
    throw CommError(text);
  }

  bool has_failed() noexcept {
    try {
      control_.check();
      return control_.failure().has_value();
    } catch (const std::exception&) {
      return true;
    }
  }

  // Ends the work of the data plane. This may take long, so the other ranks are told before of the
  // failure that is the reason. If it does not end, no exception can end it, and the process ends.
  void fail() noexcept {
    if (broken_.exchange(true) || plane_ == nullptr) return;
    std::optional<process::Watchdog> watchdog;
    try {
      watchdog.emplace(process::WatchdogOptions{
          .work = fmt::format("{}: abort after '{}'", options_.factory.name(), what_),
          .hint = "the messages of the kernel (dmesg) may say what the device or its driver does",
          .timeout = std::min(options_.timeout, kAbortTime),
          .on_hang = [this](const std::string& reason) {
            control_.abort(reason, process::FailureKind::kHang);
          }});
    } catch (const std::exception& error) {
      warn(fmt::format("{}; nothing limits the time of this abort", error.what()));
    }
    plane_->abort();
  }

  // Calls fail() if the scope is left by an exception.
  struct FailScope {
    Data& data;
    int exceptions = std::uncaught_exceptions();

    ~FailScope() {
      if (std::uncaught_exceptions() > exceptions) data.fail();
    }
  };

  // An error of the data plane says little, and may come from the failure of another rank, whose
  // report says more and arrives shortly after.
  template <typename Action>
  void guarded(const std::string& what, const Action& action) {
    what_ = what;
    turns_ = 0;
    waited_ = {};
    looked_ = Clock::now();
    const FailScope fail_scope{*this};  // after the catch blocks: they tell the other ranks
    try {
      action();
    } catch (const Error& error) {
      control_.check();
      control_.abort(error.what(),
                     timed_out_ ? process::FailureKind::kHang : process::failure_kind(error));
      throw;
    } catch (const std::exception& error) {
      for (const auto begin = Clock::now(); Clock::now() - begin < kReportTime;
           std::this_thread::sleep_for(milliseconds(10))) {
        control_.check();
      }
      const std::string text = error.what();
      const CommError told("{}: {}: {}", options_.factory.name(), what,
                           text.substr(0, text.find('\n')));
      control_.abort(told.what(), process::failure_kind(error));
      throw told;
    }
  }

  TwoPlanesOptions options_;
  Communicator& control_;
  std::optional<torch::Device> device_;
  bool staged_ = false;  // the ranks cannot have a data plane
  std::atomic<bool> broken_ = false;
  bool timed_out_ = false;
  std::string what_;  // the collective that is waited for
  int turns_ = 0;
  Clock::duration waited_{};
  Clock::time_point looked_{};
  std::function<void()> pending_;
  std::unique_ptr<DevicePlane> plane_;  // destroyed first: its stream may still use the others
  // `plane_` when it is connected. It is written after `device_`, which then does not change, so
  // that any thread can read both.
  std::atomic<DevicePlane*> started_ = nullptr;
};

TwoPlanes::TwoPlanes(const TwoPlanesOptions& options, std::unique_ptr<Communicator> control)
    : Communicator(control->topology()),
      control_(std::move(control)),
      data_(std::make_unique<Data>(options, *control_)) {}

TwoPlanes::~TwoPlanes() = default;

std::shared_ptr<StreamPoint> TwoPlanes::ready(const torch::Tensor& tensor) {
  return data_->mark(tensor.device());
}

std::string TwoPlanes::name() const {
  return data_->is_started() ? control_->name() + "+" + data_->name() : control_->name();
}

Communicator::DeviceCollectives* TwoPlanes::on_device(const torch::Device& device) {
  return size() > 1 && data_->takes(device) ? data_.get() : nullptr;
}

}  // namespace lockstep::comm

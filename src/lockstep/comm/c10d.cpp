#include "lockstep/comm/c10d.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <thread>

#include <fmt/ranges.h>
#include <torch/cuda.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/rendezvous_store.h"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Up to here, sending everything to everybody is sooner done than two exchanges.
constexpr std::size_t kSmallBytes = 32 * 1024;

}  // namespace

// The process group, and what to do when it does not answer.
class C10d::Group {
 public:
  Group(const C10dOptions& options, std::shared_ptr<launch::Rendezvous> rendezvous,
        std::vector<int> world_ranks)
      : backend_(options.backend),
        timeout_(options.timeout),
        rendezvous_(std::move(rendezvous)),
        world_ranks_(std::move(world_ranks)),
        rank_(options.topology.rank),
        device_(options.backend == "nccl" ? torch::Device(torch::kCUDA, options.topology.local_rank)
                                          : torch::Device(torch::kCPU)) {
    const auto store = c10::make_intrusive<RendezvousStore>(
        rendezvous_, options.group + "/" + options.backend + "/", timeout_);
    guarded("start", 0, [&] {
      group_ = make_process_group(store, {.backend = backend_,
                                          .address = options.address,
                                          .rank = rank_,
                                          .size = options.topology.world_size,
                                          .timeout = timeout_});
    });
  }

  // An operation that never ends would keep the group's destructor waiting; somebody else may wait
  // for it. Its threads end with the group's own time limit.
  ~Group() {
    if (!broken_) return;
    std::thread([group = std::move(group_)]() mutable { group.reset(); }).detach();
  }

  const std::string& backend() const { return backend_; }
  launch::Rendezvous& rendezvous() { return *rendezvous_; }

  // An array as the backend wants it: in its own memory, or on the device that it works on.
  torch::Tensor bytes(const void* data, std::size_t size) const {
    const torch::Tensor tensor = torch::from_blob(
        const_cast<void*>(data), {static_cast<std::int64_t>(size)}, torch::kUInt8);
    return device_.is_cpu() ? tensor : tensor.to(device_);
  }
  torch::Tensor room(std::size_t size) const {
    return torch::empty({static_cast<std::int64_t>(size)}, torch::device(device_).dtype(torch::kUInt8));
  }

  // Starts an operation and waits for it, with an eye on the others.
  template <typename Start>
  void run(const char* operation, std::size_t size, const Start& start) {
    check();
    ++operations_;
    rendezvous_->set_status(status(operation, size));
    guarded(operation, size, [&] {
      auto work = start(*group_);
      const auto began = Clock::now();
      auto looked = began;
      for (int turns = 0; !work->isCompleted(); ++turns) {
        if (turns < 200) {
          std::this_thread::yield();
          continue;
        }
        std::this_thread::sleep_for(std::chrono::microseconds(turns < 2000 ? 20 : 200));
        const auto now = Clock::now();
        if (now - looked < milliseconds(20)) continue;
        looked = now;
        check();
        if (now - began > timeout_) time_out(operation, size);
      }
      work->wait();
      if (device_.is_cuda()) torch::cuda::synchronize(device_.index());
    });
  }

  void check() {
    const auto failure = rendezvous_->failure();
    if (!failure) return;
    broken_ = true;
    throw WorkerError("rank {}: {}", failure->rank, failure->reason);
  }

  void set_broken() { broken_ = true; }
  void set_progress(std::int64_t epoch, std::int64_t batch) {
    epoch_ = epoch;
    batch_ = batch;
  }

 private:
  // What the process group throws says little; what became of the others says more, and reaches us
  // in a moment.
  void guarded(const char* operation, std::size_t size, const std::function<void()>& action) {
    try {
      action();
    } catch (const Error&) {
      broken_ = true;
      throw;
    } catch (const std::exception& error) {
      broken_ = true;
      const auto start = Clock::now();
      while (Clock::now() - start < milliseconds(1000)) {
        check();
        std::this_thread::sleep_for(milliseconds(10));
      }
      const std::string text = error.what();
      throw CommError("{}: {} of {} bytes: {}", backend_, operation, size,
                      text.substr(0, text.find('\n')));
    }
  }

  std::string status(const char* operation, std::size_t size) const {
    return fmt::format("{} {} {} of {} bytes", operations_, epoch_ > 0
                           ? fmt::format("(in epoch {}, batch {})", epoch_, batch_)
                           : "()",
                       operation, size);
  }

  [[noreturn]] void time_out(const char* operation, std::size_t size) {
    const auto peers = rendezvous_->peers();
    std::vector<std::string> came, missing;
    int culprit = -1;
    for (const int world_rank : world_ranks_) {
      const auto& peer = peers[static_cast<std::size_t>(world_rank)];
      const bool is_self = world_ranks_[static_cast<std::size_t>(rank_)] == world_rank;
      const bool here = is_self || (peer.silent < milliseconds(1000) &&
                                    std::strtoull(peer.status.c_str(), nullptr, 10) >= operations_);
      (here ? came : missing).push_back(std::to_string(world_rank));
      if (!here && culprit < 0) culprit = world_rank;
    }
    const std::string reason = fmt::format(
        "{} of {} bytes: waited {}: ranks {} came, {} did not", operation, size,
        format_duration(std::chrono::duration<double>(timeout_).count()), fmt::join(came, ", "),
        missing.empty() ? "but the network" : fmt::format("ranks {}", fmt::join(missing, ", ")));
    rendezvous_->fail(reason);
    throw CommError("{}: {}", backend_, reason);
  }

  std::string backend_;
  milliseconds timeout_;
  std::shared_ptr<launch::Rendezvous> rendezvous_;
  std::vector<int> world_ranks_;
  int rank_;
  torch::Device device_;
  c10::intrusive_ptr<ProcessGroup> group_;
  std::uint64_t operations_ = 0;
  std::int64_t epoch_ = 0;
  std::int64_t batch_ = 0;
  bool broken_ = false;
};

C10d::C10d(const C10dOptions& options, std::shared_ptr<launch::Rendezvous> rendezvous,
           std::vector<int> world_ranks)
    : Communicator(options.topology),
      group_(std::make_unique<Group>(options, std::move(rendezvous), std::move(world_ranks))) {}

C10d::~C10d() = default;

std::string C10d::name() const {
  return group_->backend();
}

void C10d::abort(std::string_view reason) noexcept {
  group_->set_broken();
  try {
    group_->rendezvous().fail(std::string(reason));
  } catch (...) {
    // Then its silence tells the others.
  }
}

void C10d::check() {
  group_->check();
}

void C10d::set_progress(std::int64_t epoch, std::int64_t batch) {
  group_->set_progress(epoch, batch);
}

std::vector<std::uint64_t> C10d::vote(std::uint64_t word) {
  const auto words = static_cast<std::size_t>(size());
  torch::Tensor mine = group_->bytes(&word, sizeof word);
  std::vector<torch::Tensor> inputs{mine};
  std::vector<std::vector<torch::Tensor>> outputs(1);
  for (std::size_t i = 0; i < words; ++i) outputs[0].push_back(torch::empty_like(mine));
  group_->run("vote", sizeof word,
              [&](ProcessGroup& group) { return group.allgather(outputs, inputs); });
  std::vector<std::uint64_t> votes(words);
  for (std::size_t i = 0; i < words; ++i) {
    std::memcpy(&votes[i], outputs[0][i].cpu().data_ptr(), sizeof word);
  }
  return votes;
}

void C10d::do_broadcast(std::byte* data, std::size_t bytes, int root) {
  if (bytes == 0) return;
  std::vector<torch::Tensor> tensors{group_->bytes(data, bytes)};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  group_->run("broadcast", bytes,
              [&](ProcessGroup& group) { return group.broadcast(tensors, options); });
  if (tensors[0].data_ptr() != data) std::memcpy(data, tensors[0].cpu().data_ptr(), bytes);
}

std::vector<std::string> C10d::do_gather(std::string_view mine, std::optional<int> root) {
  const auto lengths = vote(mine.size());
  const std::uint64_t longest = *std::ranges::max_element(lengths);
  std::vector<std::string> all(lengths.size());
  if (longest == 0) return all;
  // Gathered as tensors of one length.
  std::string padded(mine);
  padded.resize(longest);
  torch::Tensor tensor = group_->bytes(padded.data(), padded.size());
  std::vector<torch::Tensor> inputs{tensor};
  std::vector<std::vector<torch::Tensor>> outputs;
  if (!root || *root == rank()) {
    outputs.emplace_back();
    for (std::size_t i = 0; i < all.size(); ++i) outputs[0].push_back(torch::empty_like(tensor));
  }
  if (root && group_->backend() != "nccl") {
    c10d::GatherOptions options;
    options.rootRank = *root;
    group_->run("gather", longest, [&](ProcessGroup& group) {
      return group.gather(outputs, inputs, options);
    });
  } else {
    if (outputs.empty()) {
      outputs.emplace_back();
      for (std::size_t i = 0; i < all.size(); ++i) outputs[0].push_back(torch::empty_like(tensor));
    }
    group_->run("gather", longest,
                [&](ProcessGroup& group) { return group.allgather(outputs, inputs); });
  }
  if (outputs.empty()) return all;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const torch::Tensor bytes = outputs[0][i].cpu();
    all[i].assign(static_cast<const char*>(bytes.data_ptr()), lengths[i]);
  }
  return all;
}

void C10d::do_reduce(const Reduction& reduction, std::span<std::byte* const> outputs) {
  const Tree tree = reduction.tree();
  const Elements& elements = reduction.elements;
  if (elements.count == 0) return;
  const std::size_t width = c10::elementSize(elements.type);
  const auto ranks = static_cast<std::size_t>(size());
  const auto me = static_cast<std::size_t>(rank());
  std::size_t most = 0;
  for (const auto& nodes : reduction.nodes) most = std::max(most, nodes.size());

  // Rank r sums elements [bound(r), bound(r + 1)) for all; where there is little to send, each sums
  // everything.
  const bool small = elements.bytes() * most <= kSmallBytes;
  const auto bound = [&](std::size_t r) {
    return small ? (r == 0 ? 0 : elements.count)
                 : elements.count * static_cast<std::int64_t>(r) / static_cast<std::int64_t>(ranks);
  };
  const auto bytes_for = [&](std::size_t r) {
    return small ? elements.bytes() : static_cast<std::size_t>(bound(r + 1) - bound(r)) * width;
  };

  torch::Tensor received;
  std::vector<std::size_t> starts(ranks);  // of what each rank sent
  const std::size_t part = bytes_for(me);
  if (small) {
    const std::size_t most_bytes = most * elements.bytes();
    torch::Tensor sent = torch::empty({static_cast<std::int64_t>(most_bytes)}, torch::kUInt8);
    for (std::size_t i = 0; i < reduction.data.size(); ++i) {
      std::memcpy(static_cast<std::byte*>(sent.data_ptr()) + i * elements.bytes(),
                  reduction.data[i], elements.bytes());
    }
    received = torch::empty({static_cast<std::int64_t>(most_bytes * ranks)}, torch::kUInt8);
    torch::Tensor there = group_->bytes(sent.data_ptr(), most_bytes);
    std::vector<torch::Tensor> inputs{there};
    std::vector<std::vector<torch::Tensor>> gathered(1);
    for (std::size_t r = 0; r < ranks; ++r) gathered[0].push_back(torch::empty_like(there));
    group_->run("all_reduce", elements.bytes(),
                [&](ProcessGroup& group) { return group.allgather(gathered, inputs); });
    for (std::size_t r = 0; r < ranks; ++r) {
      starts[r] = r * most_bytes;
      std::memcpy(static_cast<std::byte*>(received.data_ptr()) + starts[r],
                  gathered[0][r].cpu().data_ptr(), most_bytes);
    }
  } else {
    std::vector<std::int64_t> sending(ranks), receiving(ranks);
    std::size_t total = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
      sending[r] = static_cast<std::int64_t>(reduction.data.size() * bytes_for(r));
      receiving[r] = static_cast<std::int64_t>(reduction.nodes[r].size() * part);
      starts[r] = total;
      total += static_cast<std::size_t>(receiving[r]);
    }
    torch::Tensor sent = torch::empty(
        {static_cast<std::int64_t>(reduction.data.size() * elements.bytes())}, torch::kUInt8);
    auto* at = static_cast<std::byte*>(sent.data_ptr());
    for (std::size_t r = 0; r < ranks; ++r) {
      for (const void* data : reduction.data) {
        std::memcpy(at,
                    static_cast<const std::byte*>(data) + static_cast<std::size_t>(bound(r)) * width,
                    bytes_for(r));
        at += bytes_for(r);
      }
    }
    torch::Tensor there = group_->bytes(sent.data_ptr(), sent.nbytes());
    torch::Tensor arriving = group_->room(total);
    group_->run("all_reduce", elements.bytes(), [&](ProcessGroup& group) {
      return group.alltoall_base(arriving, there, receiving, sending);
    });
    received = arriving.cpu();
  }

  std::vector<const void*> inputs;
  for (std::size_t r = 0; r < ranks; ++r) {
    for (std::size_t i = 0; i < reduction.nodes[r].size(); ++i) {
      inputs.push_back(static_cast<const std::byte*>(received.data_ptr()) + starts[r] + i * part);
    }
  }
  std::vector<void*> sums;
  const std::size_t skip = small ? 0 : static_cast<std::size_t>(bound(me)) * width;
  for (std::byte* output : outputs) sums.push_back(output + skip);
  tree.reduce(inputs, sums, static_cast<std::int64_t>(part / width), elements.type, reduction.op);
  if (small) return;

  for (std::byte* output : outputs) {
    // Parts differ by an element at most: sent as the longest, cut when they arrive.
    std::size_t longest = 0;
    for (std::size_t r = 0; r < ranks; ++r) longest = std::max(longest, bytes_for(r));
    torch::Tensor mine = torch::empty({static_cast<std::int64_t>(longest)}, torch::kUInt8);
    std::memcpy(mine.data_ptr(), output + skip, part);
    torch::Tensor there = group_->bytes(mine.data_ptr(), longest);
    std::vector<torch::Tensor> own{there};
    std::vector<std::vector<torch::Tensor>> gathered(1);
    for (std::size_t r = 0; r < ranks; ++r) gathered[0].push_back(torch::empty_like(there));
    group_->run("all_reduce", elements.bytes(),
                [&](ProcessGroup& group) { return group.allgather(gathered, own); });
    for (std::size_t r = 0; r < ranks; ++r) {
      if (r == me) continue;
      std::memcpy(output + static_cast<std::size_t>(bound(r)) * width,
                  gathered[0][r].cpu().data_ptr(), bytes_for(r));
    }
  }
}

}  // namespace lockstep::comm

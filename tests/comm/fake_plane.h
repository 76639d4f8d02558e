// A data plane without GPUs. The ranks are threads of one process, tensors are on the CPU, and a
// stream is a queue whose work another thread does: so the host is ahead of its streams, as with a
// GPU. Streams can be late, fail on one rank, or hang, and so can the start and the abort.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <signal.h>

#include "lockstep/comm/device_plane.h"
#include "lockstep/comm/shared.h"
#include "lockstep/comm/two_planes.h"
#include "lockstep/process/host_group.h"

namespace lockstep::comm {

class FakePoint final : public StreamPoint {
 public:
  bool reached() override {
    const std::lock_guard lock(mutex_);
    if (error_ != nullptr) std::rethrow_exception(error_);
    return reached_;
  }
  void reach(std::exception_ptr error = nullptr) {
    const std::lock_guard lock(mutex_);
    reached_ = true;
    error_ = error;
  }

 private:
  std::mutex mutex_;
  bool reached_ = false;
  std::exception_ptr error_;
};

class FakeStream {
 public:
  FakeStream() : last_(std::make_shared<FakePoint>()), thread_([this] { work(); }) {
    last_->reach();
  }
  // Work that has not begun is dropped.
  ~FakeStream() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
      tasks_.clear();
    }
    changed_.notify_all();
    thread_.join();
  }
  FakeStream(const FakeStream&) = delete;
  FakeStream& operator=(const FakeStream&) = delete;

  std::shared_ptr<FakePoint> give(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    last_ = std::make_shared<FakePoint>();
    tasks_.emplace_back(std::move(task), last_);
    changed_.notify_all();
    return last_;
  }
  std::shared_ptr<FakePoint> mark() {
    const std::lock_guard lock(mutex_);
    return last_;
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return ending_ || !tasks_.empty(); });
      if (ending_) return;
      auto [task, point] = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      try {
        task();
        point->reach();
      } catch (...) {
        point->reach(std::current_exception());
      }
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<std::function<void()>, std::shared_ptr<FakePoint>>> tasks_;
  bool ending_ = false;
  std::shared_ptr<FakePoint> last_;
  std::thread thread_;
};

// What the ranks of a group send each other.
class FakeFabric {
 public:
  void send(int from, int to, const torch::Tensor& tensor) {
    const std::lock_guard lock(mutex_);
    messages_[{from, to}].push_back(tensor.clone());
    changed_.notify_all();
  }
  // Nothing if `aborted` becomes true.
  std::optional<torch::Tensor> receive(int from, int to, const std::atomic<bool>& aborted) {
    std::unique_lock lock(mutex_);
    auto& queue = messages_[{from, to}];
    while (queue.empty() && !aborted) changed_.wait_for(lock, std::chrono::milliseconds(5));
    if (queue.empty()) return std::nullopt;
    torch::Tensor tensor = std::move(queue.front());
    queue.pop_front();
    return tensor;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, int>, std::deque<torch::Tensor>> messages_;
};

struct FakePlaneOptions {
  std::optional<int> fails_at = {};   // the operation of this rank's plane, from 0, that throws
  std::optional<int> hangs_at = {};   // and the one that does not end
  std::optional<int> dies_at = {};    // and the one in which the process is killed
  std::chrono::milliseconds late{0};  // how long every operation takes at least
  std::string identity = {};          // of this rank's device; default: one of its own
  std::string start_error = {};       // "identity", "id", "make" or "connect": what throws
  bool hangs_in_connect = false;
  bool reports_hang = false;               // check() throws while something hangs
  std::function<void()> in_abort = [] {};  // called by abort(), which waits for its end
};

class FakePlane final : public DevicePlane {
 public:
  FakePlane(const PlaneStart& start, std::shared_ptr<FakeFabric> fabric,
            const FakePlaneOptions& options)
      : rank_(start.rank),
        size_(start.size),
        poll_(start.poll),
        fabric_(std::move(fabric)),
        options_(options) {}
  ~FakePlane() override { abort(); }

  // The stream that a model would be computed on.
  FakeStream& compute() { return compute_; }
  int fast_sums() const { return fast_sums_; }
  bool aborted() const { return aborted_; }

  void connect() override {
    if (options_.start_error == "connect") throw std::runtime_error("no fake device to connect");
    if (!options_.hangs_in_connect) return;
    hangs_ = true;
    while (true) poll_();
  }

  std::shared_ptr<StreamPoint> mark() override { return compute_.mark(); }

  std::shared_ptr<StreamPoint> run(const std::shared_ptr<StreamPoint>& after,
                                   std::function<void()> work) override {
    return side_.give([this, after, work = std::move(work)] {
      while (after != nullptr && !after->reached()) {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
      work();
    });
  }

  void exchange(const std::vector<PeerTensor>& sends,
                const std::vector<PeerTensor>& receives) override {
    begin();
    for (const auto& [rank, tensor] : sends) fabric_->send(rank_, rank, tensor);
    for (const auto& [rank, tensor] : receives) receive(rank, tensor);
  }

  void all_gather(const torch::Tensor& mine, const torch::Tensor& all) override {
    begin();
    const auto place = [&](int rank) { return all.narrow(0, rank * mine.numel(), mine.numel()); };
    place(rank_).copy_(mine);
    for (int rank = 0; rank < size_; ++rank) {
      if (rank != rank_) fabric_->send(rank_, rank, mine);
    }
    for (int rank = 0; rank < size_; ++rank) {
      if (rank != rank_) receive(rank, place(rank));
    }
  }

  void broadcast(const torch::Tensor& tensor, int root) override {
    begin();
    for (int rank = 0; root == rank_ && rank < size_; ++rank) {
      if (rank != rank_) fabric_->send(rank_, rank, tensor);
    }
    if (root != rank_) receive(root, tensor);
  }

  bool can_reduce(torch::ScalarType type) const override {
    return type != torch::kBool && type != torch::kInt16;
  }

  // Sums from the last rank to the first: not the order of the tree.
  void all_reduce(const torch::Tensor& tensor, ReduceOp op) override {
    begin();
    ++fast_sums_;
    std::vector<torch::Tensor> terms(static_cast<std::size_t>(size_));
    for (int rank = 0; rank < size_; ++rank) {
      if (rank != rank_) fabric_->send(rank_, rank, tensor);
    }
    for (int rank = 0; rank < size_; ++rank) {
      torch::Tensor& term = terms[static_cast<std::size_t>(rank)];
      term = tensor.clone();
      if (rank != rank_) receive(rank, term);
    }
    torch::Tensor sum = terms.back();
    for (std::size_t i = terms.size() - 1; i-- > 0;) {
      switch (op) {
        case ReduceOp::kMin:
          sum = torch::minimum(sum, terms[i]);
          break;
        case ReduceOp::kMax:
          sum = torch::maximum(sum, terms[i]);
          break;
        case ReduceOp::kProduct:
          sum = sum * terms[i];
          break;
        default:
          sum = sum + terms[i];
      }
    }
    torch::Tensor(tensor).copy_(sum);
  }

  void check() override {
    if (hangs_ && options_.reports_hang) throw std::runtime_error("the fake device is stuck");
  }
  void abort() noexcept override {
    if (!aborted_.exchange(true)) options_.in_abort();
  }

 private:
  void begin() {
    const int operation = operations_++;
    if (operation == options_.fails_at) throw std::runtime_error("the fake device broke");
    if (operation == options_.dies_at) ::raise(SIGKILL);
    std::this_thread::sleep_for(options_.late);
    while (operation == options_.hangs_at && !aborted_) {
      hangs_ = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (aborted_) throw std::runtime_error("the fake device was aborted");
  }

  void receive(int rank, torch::Tensor to) {
    const auto tensor = fabric_->receive(rank, rank_, aborted_);
    if (!tensor) throw std::runtime_error("the fake device was aborted");
    to.copy_(*tensor);
  }

  int rank_;
  int size_;
  std::function<void()> poll_;
  std::shared_ptr<FakeFabric> fabric_;
  FakePlaneOptions options_;
  std::atomic<bool> hangs_ = false;
  std::atomic<int> operations_ = 0;
  std::atomic<int> fast_sums_ = 0;
  std::atomic<bool> aborted_ = false;
  FakeStream compute_;
  FakeStream side_;
};

// One per rank. Takes tensors on the CPU.
class FakePlanes final : public PlaneFactory {
 public:
  FakePlanes(int rank, std::shared_ptr<FakeFabric> fabric, FakePlaneOptions options)
      : rank_(rank), fabric_(std::move(fabric)), options_(std::move(options)) {}

  std::string name() const override { return "fake"; }
  bool takes(const torch::Device& device) const override { return device.is_cpu(); }
  std::string identity(const torch::Device&) const override {
    fail_in("identity");
    return options_.identity.empty() ? "device of rank " + std::to_string(rank_)
                                     : options_.identity;
  }
  std::string make_id() const override {
    fail_in("id");
    return std::string("any\0bytes", 9);
  }
  std::unique_ptr<DevicePlane> make(const PlaneStart& options) const override {
    EXPECT_EQ(options.id, std::string("any\0bytes", 9));
    fail_in("make");
    auto plane = std::make_unique<FakePlane>(options, fabric_, options_);
    plane_ = plane.get();
    return plane;
  }

  // Null before the start.
  FakePlane* plane() const { return plane_; }

 private:
  void fail_in(const std::string& what) const {
    if (options_.start_error == what) throw std::runtime_error("no fake device for " + what);
  }

  int rank_;
  std::shared_ptr<FakeFabric> fabric_;
  FakePlaneOptions options_;
  mutable FakePlane* plane_ = nullptr;
};

struct FakeRanksOptions {
  int size = 2;
  SumOrder order = SumOrder::kOrdered;
  bool required = false;
  std::chrono::milliseconds timeout = std::chrono::seconds(20);
  std::map<int, FakePlaneOptions> planes = {};  // of ranks that are not as usual
  // Makes a rank's control plane, and what must outlive it. Default: shared memory.
  std::function<std::unique_ptr<Communicator>(process::HostGroup&,
                                              std::vector<std::shared_ptr<void>>& owned)>
      control = [](process::HostGroup& host_group, std::vector<std::shared_ptr<void>>&) {
        return std::make_unique<Shared>(host_group);
      };
};

struct FakeRank {
  Communicator& comm;
  const FakePlanes& planes;
};

// Calls `body` for every rank, each in a thread.
inline void run_fake_ranks(const FakeRanksOptions& options,
                           const std::function<void(const FakeRank&)>& body) {
  const auto memory = std::make_shared<process::HostGroupMemory>(options.size);
  const auto fabric = std::make_shared<FakeFabric>();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options.size; ++rank) {
    threads.emplace_back([&, rank] {
      process::HostGroup host_group(memory, {.rank = rank, .timeout = options.timeout});
      try {
        host_group.join();
        const auto own = options.planes.find(rank);
        const FakePlanes planes(rank, fabric,
                                own == options.planes.end() ? FakePlaneOptions() : own->second);
        std::vector<std::shared_ptr<void>> owned;
        auto control = options.control(host_group, owned);
        TwoPlanes comm({.factory = planes,
                        .order = options.order,
                        .required = options.required,
                        .timeout = options.timeout},
                       std::move(control));
        body({.comm = comm, .planes = planes});
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
        host_group.fail(rank, error.what());
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace lockstep::comm

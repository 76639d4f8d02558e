#include "bench/collectives.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include <fmt/format.h>
#include <torch/types.h>

#include "bench/median.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/rendezvous_session.h"
#include "lockstep/comm/rendezvous_store.h"
#include "lockstep/comm/shared.h"
#include "lockstep/process/forked_workers.h"

namespace lockstep::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWorkers = 2;
constexpr int kCollectiveRounds = 15;
constexpr std::array<std::int64_t, 6> kSizes = {4 << 10, 32 << 10, 256 << 10,
                                                1 << 20, 25 << 20, 100 << 20};
constexpr std::chrono::minutes kTimeout(2);

// Mean seconds of one call. The other worker makes the same number of calls.
template <typename Action>
double mean_time_of(int calls, const Action& action) {
  const auto start = Clock::now();
  for (int i = 0; i < calls; ++i) action();
  return std::chrono::duration<double>(Clock::now() - start).count() / calls;
}

// Chosen so that a round of one size takes about ten milliseconds, with Gloo about a hundred.
int calls_of(std::int64_t bytes) {
  return static_cast<int>(std::clamp<std::int64_t>((8 << 20) / bytes, 1, 200));
}

struct CollectiveTimes {
  std::vector<double> shm, gloo, copy;
};

// Measures the alternatives one after the other in each round, so that a machine that becomes
// slower affects all of them.
class Worker {
 public:
  explicit Worker(process::HostGroup& host_group)
      : shared_(host_group),
        session_(comm::meet_through(shared_, {.answer = kTimeout})),
        gloo_(comm::make_process_group(
            c10::make_intrusive<comm::RendezvousStore>(session_.rendezvous, "bench/", kTimeout),
            {.backend = "gloo",
             .address = "127.0.0.1",
             .rank = host_group.rank(),
             .size = host_group.size(),
             .timeout = kTimeout})) {}
  ~Worker() { shared_.barrier(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  CollectiveTimes reduce(std::int64_t bytes) {
    const torch::Tensor tensor = torch::zeros({bytes / 4});
    const torch::Tensor copy = torch::empty_like(tensor);
    std::vector<torch::Tensor> tensors{torch::zeros({bytes / 4})};
    const int calls = calls_of(bytes);
    CollectiveTimes measured;
    for (int round = -1; round < kCollectiveRounds; ++round) {
      shared_.barrier();
      const double shm = mean_time_of(calls, [&] { shared_.all_reduce(tensor); });
      shared_.barrier();
      const double gloo = mean_time_of(calls, [&] { gloo_->allreduce(tensors)->wait(); });
      shared_.barrier();
      // Only rank 0 copies; the other worker waits.
      const double alone =
          shared_.is_primary()
              ? mean_time_of(
                    calls,
                    [&] { std::memcpy(copy.data_ptr(), tensor.data_ptr(), tensor.nbytes()); })
              : 0;
      shared_.barrier();
      if (round < 0) continue;  // warms up
      measured.shm.push_back(shm);
      measured.gloo.push_back(gloo);
      measured.copy.push_back(alone);
    }
    return measured;
  }

  CollectiveTimes barrier() {
    constexpr int kCalls = 200;
    CollectiveTimes measured;
    for (int round = -1; round < kCollectiveRounds; ++round) {
      shared_.barrier();
      const double shm = mean_time_of(kCalls, [&] { shared_.barrier(); });
      const double gloo = mean_time_of(kCalls, [&] { gloo_->barrier()->wait(); });
      if (round < 0) continue;
      measured.shm.push_back(shm);
      measured.gloo.push_back(gloo);
    }
    return measured;
  }

 private:
  comm::Shared shared_;
  comm::RendezvousSession session_;
  c10::intrusive_ptr<comm::ProcessGroup> gloo_;
};

nlohmann::json measure(process::HostGroup& host_group) {
  const bool prints = host_group.rank() == 0;
  nlohmann::json json;
  Worker worker(host_group);
  if (prints) {
    fmt::print("all_reduce of float32, {} workers, {} rounds; memcpy is one worker's\n\n", kWorkers,
               kCollectiveRounds);
    fmt::print("{:>10} {:>12} {:>12} {:>8} {:>10} {:>10} {:>12} {:>14}\n", "bytes", "shm us",
               "gloo us", "ratio", "shm GB/s", "gloo GB/s", "memcpy GB/s", "shm / memcpy");
  }
  for (const std::int64_t bytes : kSizes) {
    const CollectiveTimes measured = worker.reduce(bytes);
    if (!prints) continue;
    const double shm = median(measured.shm);
    const double gloo = median(measured.gloo);
    const double copy = median(measured.copy);
    const auto speed = [&](double seconds) { return static_cast<double>(bytes) / seconds / 1e9; };
    fmt::print("{:>10} {:>12.1f} {:>12.1f} {:>8.1f} {:>10.2f} {:>10.2f} {:>12.2f} {:>13.0f}%\n",
               with_thousands(bytes), 1e6 * shm, 1e6 * gloo, gloo / shm, speed(shm), speed(gloo),
               speed(copy), 100 * copy / shm);
    json["all_reduce"][std::to_string(bytes)] = {{"shm_seconds", shm},
                                                 {"gloo_seconds", gloo},
                                                 {"gloo_time_ratio", gloo / shm},
                                                 {"memcpy_share", copy / shm}};
  }
  const CollectiveTimes measured = worker.barrier();
  if (!prints) return json;
  const double shm = median(measured.shm);
  const double gloo = median(measured.gloo);
  fmt::print("{:>10} {:>12.2f} {:>12.1f} {:>8.1f}\n", "barrier", 1e6 * shm, 1e6 * gloo, gloo / shm);
  json["barrier"] = {{"shm_seconds", shm}, {"gloo_seconds", gloo}, {"gloo_time_ratio", gloo / shm}};
  return json;
}

}  // namespace

nlohmann::json run_collectives() {
  process::ForkedWorkers forked({.size = kWorkers, .timeout = kTimeout},
                                [](process::HostGroup& host_group) { measure(host_group); });
  nlohmann::json json = measure(forked.host_group());
  forked.join();
  return json;
}

}  // namespace lockstep::bench

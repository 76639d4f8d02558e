// Threads that make batches ahead. Each makes whole batches, and they are handed out in order.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "lockstep/data/batch.h"

namespace lockstep::data {

struct BatchThreadsOptions {
  // make(0) to make(batches - 1), or fewer if make() returns nothing.
  std::size_t batches = std::numeric_limits<std::size_t>::max();
  std::size_t threads = 1;        // at least 1
  std::size_t ahead = 1;          // at least 1: batches that are ready or being made, at most
  bool one_torch_thread = false;  // LibTorch's own threads are not used in these threads
};

class BatchThreads {
 public:
  // Nothing: this batch does not exist, and no later one does.
  using Make = std::function<std::optional<Batch>(std::size_t batch)>;

  // `make` is called by several threads at once if there are several. Throws WorkerError if the
  // system refuses a thread.
  BatchThreads(Make make, const BatchThreadsOptions& options);
  ~BatchThreads();  // waits for the batches that are being made, and makes no others

  // The next batch, or nothing at the end. If make() threw for this batch, throws the same, and
  // again if it is called again. Only one thread may call it.
  std::optional<Batch> next();

 private:
  struct Slot {
    std::optional<Batch> batch;
    std::exception_ptr error;
    bool is_made = false;
  };

  void start(std::size_t threads);
  void run(const std::stop_token& stop);
  std::optional<std::size_t> claim(const std::stop_token& stop);
  Slot make_slot(std::size_t batch) const;
  Slot& slot_of(std::size_t batch) { return slots_[batch % slots_.size()]; }

  const Make make_;
  const BatchThreadsOptions options_;
  std::mutex mutex_;  // of all below
  std::condition_variable_any room_changed_;
  std::condition_variable made_;
  std::vector<Slot> slots_;
  std::size_t claimed_ = 0;  // batches that a thread makes or has made
  std::size_t given_ = 0;    // batches that next() has returned
  bool ended_ = false;       // no further batch is made
  std::vector<std::jthread> threads_;
};

}  // namespace lockstep::data

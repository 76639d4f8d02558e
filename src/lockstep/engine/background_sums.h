// Sums arrays over the ranks in a thread, while the caller computes other things.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include <c10/core/Stream.h>

#include "lockstep/comm/communicator.h"

namespace lockstep {

// Every rank must add the same sums in the same order. From the first add() to finish(), any other
// collective of the communicator waits for the sums that were added before it. The communicator
// must outlive this object. One thread at a time may call; the thread that sums is started with the
// first sum.
class BackgroundSums {
 public:
  explicit BackgroundSums(comm::Communicator& communicator) : communicator_(communicator) {}
  // Waits for the sum that is being computed. Sums that have not begun are dropped.
  ~BackgroundSums();
  BackgroundSums(const BackgroundSums&) = delete;
  BackgroundSums& operator=(const BackgroundSums&) = delete;

  // The result is written to the first tensor. Tensors on a device may still be computed by the
  // current stream of the calling thread: the sum begins when they are complete.
  void add(comm::Parts parts);

  // Waits for all sums. Throws what a sum threw; the sums after it were not computed then.
  void finish();

 private:
  void wait();  // as finish(), but other collectives still have to wait
  void work();

  struct Sum {
    comm::Parts parts;
    std::optional<c10::Stream>
        stream;  // of the thread that added it, if the tensors are on a device
  };

  comm::Communicator& communicator_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Sum> waiting_;
  std::uint64_t added_ = 0;
  std::uint64_t done_ = 0;
  std::exception_ptr error_;
  bool registered_ = false;  // with the communicator
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace lockstep

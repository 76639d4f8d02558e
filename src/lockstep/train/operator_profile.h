// Measures the time that a run spends in each operator of LibTorch ("aten::addmm") and in each
// function of the backward pass ("AddmmBackward0").
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/record_function.h>

namespace lockstep {

// Measures the calls of this thread, and those of the threads that compute gradients for it, from
// its constructor to its destructor, which must be called by this thread, too. Each call costs
// some time. If there is no such object, nothing is measured, and nothing costs time.
class OperatorProfile {
 public:
  // Throws Error if there is another one in this process.
  OperatorProfile();
  ~OperatorProfile();
  OperatorProfile(const OperatorProfile&) = delete;
  OperatorProfile& operator=(const OperatorProfile&) = delete;

  struct Row {
    std::string name;
    std::int64_t calls = 0;
    double seconds = 0;  // its own time, without that of operators that it calls
  };
  // Those with the most own time first.
  std::vector<Row> rows() const;

  // The first 15 rows with the share of the time since the constructor; the other operators
  // together; and the time outside of all operators.
  std::string table() const;

  // Called by the callbacks of LibTorch.
  void add(std::string_view name, double seconds);

 private:
  struct Sum {
    std::int64_t calls = 0;
    double seconds = 0;
  };

  std::chrono::steady_clock::time_point start_;
  mutable std::mutex mutex_;  // gradients of another device are computed by another thread
  std::map<std::string, Sum, std::less<>> sums_;
  at::CallbackHandle handle_;  // the last member, because callbacks use the others
};

}  // namespace lockstep

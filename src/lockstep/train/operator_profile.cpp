#include "lockstep/train/operator_profile.h"

#include <algorithm>
#include <atomic>
#include <memory>

#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kRowsShown = 15;

// It is global because LibTorch's callbacks are plain functions.
std::atomic<OperatorProfile*> measuring{nullptr};

// A call that has not returned yet.
struct OpenCall {
  Clock::time_point start;
  double inner = 0;  // seconds of the calls inside of it that have returned
};
thread_local std::vector<OpenCall> open_calls;

double elapsed_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::unique_ptr<at::ObserverContext> enter_operator(const at::RecordFunction&) {
  open_calls.push_back({.start = Clock::now()});
  return nullptr;
}

void leave_operator(const at::RecordFunction& function, at::ObserverContext*) {
  if (open_calls.empty()) return;
  const OpenCall call = open_calls.back();
  open_calls.pop_back();
  const double seconds = elapsed_since(call.start);
  if (!open_calls.empty()) open_calls.back().inner += seconds;
  OperatorProfile* const profile = measuring;
  if (profile != nullptr) profile->add(function.name(), seconds - call.inner);
}

at::CallbackHandle start_measuring(OperatorProfile* profile) {
  OperatorProfile* none = nullptr;
  if (!measuring.compare_exchange_strong(none, profile)) {
    throw Error("profile_operators: another run of this process is measured already");
  }
  open_calls.clear();
  return at::addThreadLocalCallback(
      at::RecordFunctionCallback(enter_operator, leave_operator)
          .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
}

std::string table_line(const std::string& name, const std::string& calls, double seconds,
                       double all) {
  return fmt::format("{:<44} {:>10} {:>10.3f} {:>6.1f}%", name, calls, seconds,
                     all > 0 ? 100 * seconds / all : 0.0);
}

}  // namespace

OperatorProfile::OperatorProfile() : start_(Clock::now()), handle_(start_measuring(this)) {}

OperatorProfile::~OperatorProfile() {
  at::removeCallback(handle_);
  measuring = nullptr;
}

void OperatorProfile::add(std::string_view name, double seconds) {
  const std::lock_guard lock(mutex_);
  auto found = sums_.find(name);
  if (found == sums_.end()) found = sums_.emplace(name, Sum{}).first;
  found->second.calls += 1;
  found->second.seconds += seconds;
}

std::vector<OperatorProfile::Row> OperatorProfile::rows() const {
  const std::lock_guard lock(mutex_);
  std::vector<Row> rows;
  for (const auto& [name, sum] : sums_) rows.push_back({name, sum.calls, sum.seconds});
  std::ranges::stable_sort(rows, std::greater(), &Row::seconds);
  return rows;
}

std::string OperatorProfile::table() const {
  const double all = elapsed_since(start_);
  const std::vector<Row> measured = rows();
  std::string text =
      fmt::format("{:<44} {:>10} {:>10} {:>7}", "operator", "calls", "seconds", "share");
  double outside = all;
  Row others;
  for (std::size_t i = 0; i < measured.size(); ++i) {
    const Row& row = measured[i];
    outside -= row.seconds;
    if (i < kRowsShown) {
      text += '\n' + table_line(row.name, fmt::to_string(row.calls), row.seconds, all);
    } else {
      others.calls += row.calls;
      others.seconds += row.seconds;
    }
  }
  if (measured.size() > kRowsShown) {
    text += '\n' + table_line(fmt::format("{} others", measured.size() - kRowsShown),
                              fmt::to_string(others.calls), others.seconds, all);
  }
  // Operators of several threads may take more time together than the run.
  return text + '\n' + table_line("outside of operators", "", std::max(0.0, outside), all);
}

}  // namespace lockstep

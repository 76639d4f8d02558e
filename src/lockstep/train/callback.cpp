#include "lockstep/train/callback.h"

#include <algorithm>
#include <cstdlib>
#include <typeinfo>

#include <cxxabi.h>

#include "lockstep/base/error.h"
#include "lockstep/base/warn.h"

namespace lockstep {

std::string Callback::name() const {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> demangled(
      abi::__cxa_demangle(typeid(*this).name(), nullptr, nullptr, &status), &std::free);
  const std::string full = status == 0 ? demangled.get() : typeid(*this).name();
  const auto scope = full.rfind("::");
  return scope == std::string::npos ? full : full.substr(scope + 2);
}

Callbacks::Callbacks(std::initializer_list<Item> items) {
  for (const auto& item : items) add(item);
}

void Callbacks::add(Item item) {
  if (item.held_ == nullptr)
    throw ConfigError("callbacks: expected a callback, got a null pointer");
  items_.push_back(std::move(item.held_));
}

std::vector<CallbackPtr> Callbacks::sorted() const {
  std::vector<CallbackPtr> sorted = items_;
  std::ranges::stable_sort(sorted, {},
                           [](const CallbackPtr& item) { return item->traits().order; });
  return sorted;
}

void notify_all(const std::vector<CallbackPtr>& callbacks, Hook hook, State& state) {
  for (const auto& callback : callbacks) (callback.get()->*hook)(state);
}

void notify_end(const std::vector<CallbackPtr>& callbacks, Hook hook, State& state) {
  std::exception_ptr first;
  for (const auto& callback : callbacks) {
    try {
      (callback.get()->*hook)(state);
    } catch (...) {
      if (!first) first = std::current_exception();
      // A callback may have missed this hook, so a run resumed from here could differ.
      state.can_snapshot = false;
    }
  }
  if (first) std::rethrow_exception(first);
}

void notify_failure(const std::vector<CallbackPtr>& callbacks, State& state) noexcept {
  for (const Hook hook : {&Callback::on_exception, &Callback::on_run_end}) {
    try {
      notify_end(callbacks, hook, state);
    } catch (const std::exception& error) {
      warn(fmt::format("while the run was ending: {}", message_of(error)));
    } catch (...) {
      warn("while the run was ending, a callback threw something that is no exception");
    }
  }
}

}  // namespace lockstep

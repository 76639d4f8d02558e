#include "lockstep/rendezvous/key_values.h"

#include <charconv>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::rendezvous {

std::vector<KeyValues::Waiter> KeyValues::set(const std::string& key, std::string value) {
  values_[key] = std::move(value);
  std::vector<Waiter> woken;
  const auto [first, last] = waiters_.equal_range(key);
  for (auto it = first; it != last; ++it) woken.push_back(it->second);
  waiters_.erase(first, last);
  return woken;
}

const std::string* KeyValues::find(const std::string& key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

std::int64_t KeyValues::sum(const std::string& key, std::int64_t delta) const {
  const std::string* value = find(key);
  std::int64_t number = 0;
  if (value) {
    const char* end = value->data() + value->size();
    const auto [stopped, error] = std::from_chars(value->data(), end, number);
    if (error != std::errc() || stopped != end) {
      throw CommError("key '{}': expected a number to add {} to, got '{}'", key, delta,
                      value->substr(0, 40));
    }
  }
  std::int64_t sum = 0;
  if (__builtin_add_overflow(number, delta, &sum)) {
    throw CommError("key '{}': the sum of {} and {} does not fit into 64 bits", key, number, delta);
  }
  return sum;
}

void KeyValues::cancel(Waiter waiter) {
  std::erase_if(waiters_, [&](const auto& entry) { return entry.second == waiter; });
}

void KeyValues::cancel_all(std::uint64_t connection) {
  std::erase_if(waiters_, [&](const auto& entry) { return entry.second.connection == connection; });
}

}  // namespace lockstep::rendezvous

// The rendezvous' keys and values, and who waits for one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace lockstep::rendezvous {

// Not thread-safe.
class KeyValues {
 public:
  // A request to be answered once its key is set.
  struct Waiter {
    std::uint64_t connection = 0;
    std::int64_t request = 0;

    bool operator==(const Waiter&) const = default;
  };

  // Who waited for the key, and waits no longer.
  std::vector<Waiter> set(const std::string& key, std::string value);
  const std::string* find(const std::string& key) const;
  bool erase(const std::string& key) { return values_.erase(key) > 0; }
  std::size_t size() const { return values_.size(); }

  // The sum of `delta` and the key's value, 0 where there is none, for set(): a decimal number, as
  // c10d's stores keep it. Throws CommError where the value is no number or the sum has no room.
  std::int64_t sum(const std::string& key, std::int64_t delta) const;

  void wait(const std::string& key, Waiter waiter) { waiters_.emplace(key, waiter); }
  void cancel(Waiter waiter);
  // Of a connection that is gone.
  void cancel_all(std::uint64_t connection);

 private:
  std::unordered_map<std::string, std::string> values_;
  std::multimap<std::string, Waiter> waiters_;
};

}  // namespace lockstep::rendezvous

// The keys and values of a rendezvous, and the requests that wait for a key.
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

  // Sets the key. Returns the requests that waited for it, and removes them.
  std::vector<Waiter> set(const std::string& key, std::string value);
  const std::string* find(const std::string& key) const;
  bool erase(const std::string& key) { return values_.erase(key) > 0; }
  std::size_t size() const { return values_.size(); }

  // The sum of `delta` and the key's value, which is a decimal number as in c10d's stores, and 0 if
  // the key is not set. The caller passes the sum to set(). Throws CommError if the value is not a
  // number or the sum does not fit into 64 bits.
  std::int64_t sum(const std::string& key, std::int64_t delta) const;

  void wait(const std::string& key, Waiter waiter) { waiters_.emplace(key, waiter); }
  void cancel(Waiter waiter);
  // Removes all requests of a connection that is closed.
  void cancel_all(std::uint64_t connection);

 private:
  std::unordered_map<std::string, std::string> values_;
  std::multimap<std::string, Waiter> waiters_;
};

}  // namespace lockstep::rendezvous

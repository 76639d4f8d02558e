// Lockstep's rendezvous as a c10d store, through which the ranks of a process group find each
// other.
#pragma once

#include <memory>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "lockstep/rendezvous/rendezvous.h"

namespace lockstep::comm {

class RendezvousStore : public c10d::Store {
 public:
  // All keys begin with `prefix`, so several process groups may share a rendezvous. No wait takes
  // longer than `timeout`, also if the process group gives a longer limit.
  RendezvousStore(std::shared_ptr<rendezvous::Rendezvous> rendezvous, std::string prefix,
                  std::chrono::milliseconds timeout);

  void set(const std::string& key, const std::vector<std::uint8_t>& value) override;
  std::vector<std::uint8_t> get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  // Counts the keys of the whole rendezvous, whatever their prefix.
  std::int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;
  // Another store with the same keys. Newer versions of LibTorch ask for it.
  c10::intrusive_ptr<Store> clone();

 private:
  std::vector<std::string> prefixed(const std::vector<std::string>& keys) const;

  std::shared_ptr<rendezvous::Rendezvous> rendezvous_;
  std::string prefix_;
};

}  // namespace lockstep::comm

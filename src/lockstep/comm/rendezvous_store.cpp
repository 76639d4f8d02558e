#include "lockstep/comm/rendezvous_store.h"

#include <algorithm>
#include <utility>

namespace lockstep::comm {

RendezvousStore::RendezvousStore(std::shared_ptr<rendezvous::Rendezvous> rendezvous,
                                 std::string prefix, std::chrono::milliseconds timeout)
    : Store(timeout), rendezvous_(std::move(rendezvous)), prefix_(std::move(prefix)) {}

void RendezvousStore::set(const std::string& key, const std::vector<std::uint8_t>& value) {
  rendezvous_->set(prefix_ + key, {reinterpret_cast<const char*>(value.data()), value.size()});
}

std::vector<std::uint8_t> RendezvousStore::get(const std::string& key) {
  const std::string value = rendezvous_->get(prefix_ + key, timeout_);
  return {value.begin(), value.end()};
}

std::int64_t RendezvousStore::add(const std::string& key, std::int64_t value) {
  return rendezvous_->add(prefix_ + key, value);
}

c10::intrusive_ptr<c10d::Store> RendezvousStore::clone() {
  return c10::make_intrusive<RendezvousStore>(rendezvous_, prefix_, timeout_);
}

bool RendezvousStore::deleteKey(const std::string& key) {
  return rendezvous_->erase(prefix_ + key);
}

bool RendezvousStore::check(const std::vector<std::string>& keys) {
  return rendezvous_->check(prefixed(keys));
}

std::int64_t RendezvousStore::getNumKeys() {
  return rendezvous_->num_keys();
}

void RendezvousStore::wait(const std::vector<std::string>& keys) {
  wait(keys, timeout_);
}

void RendezvousStore::wait(const std::vector<std::string>& keys,
                           const std::chrono::milliseconds& timeout) {
  rendezvous_->wait(prefixed(keys), std::min(timeout, timeout_));
}

std::vector<std::string> RendezvousStore::prefixed(const std::vector<std::string>& keys) const {
  std::vector<std::string> full;
  for (const auto& key : keys) full.push_back(prefix_ + key);
  return full;
}

}  // namespace lockstep::comm

#include "lockstep/data/batch.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep {

const torch::Tensor& Batch::operator[](std::string_view key) const {
  const auto found = std::ranges::find(entries_, key, &Entry::first);
  if (found == entries_.end()) {
    throw ConfigError("no '{}' in the batch; {}", key, suggest(key, keys()));
  }
  return found->second;
}

void Batch::set(std::string_view key, torch::Tensor tensor) {
  const auto found = std::ranges::find(entries_, key, &Entry::first);
  if (found != entries_.end()) {
    found->second = std::move(tensor);
  } else {
    entries_.emplace_back(std::string(key), std::move(tensor));
  }
}

bool Batch::contains(std::string_view key) const {
  return std::ranges::find(entries_, key, &Entry::first) != entries_.end();
}

std::vector<std::string> Batch::keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, tensor] : entries_) keys.push_back(key);
  return keys;
}

std::int64_t Batch::size() const {
  return entries_.empty() || entries_.front().second.dim() == 0 ? 0
                                                                : entries_.front().second.size(0);
}

void Batch::erase(std::string_view key) {
  std::erase_if(entries_, [&](const Entry& entry) { return entry.first == key; });
}

Batch Batch::to(torch::Device device) const {
  Batch moved = *this;
  for (auto& [key, tensor] : moved.entries_) tensor = tensor.to(device, /*non_blocking=*/true);
  return moved;
}

}  // namespace lockstep

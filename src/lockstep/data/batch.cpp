#include "lockstep/data/batch.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep {
namespace {

template <typename T>
const T* find_in(const std::vector<std::pair<std::string, T>>& entries, std::string_view key) {
  for (const auto& entry : entries) {
    if (entry.first == key) return &entry.second;
  }
  return nullptr;
}

template <typename T>
void set_in(std::vector<std::pair<std::string, T>>& entries, std::string_view key, T value) {
  for (auto& entry : entries) {
    if (entry.first != key) continue;
    entry.second = std::move(value);
    return;
  }
  entries.emplace_back(std::string(key), std::move(value));
}

template <typename T>
void erase_in(std::vector<std::pair<std::string, T>>& entries, std::string_view key) {
  std::erase_if(entries, [&](const auto& entry) { return entry.first == key; });
}

}  // namespace

void Batch::fail_to_find(std::string_view key, std::string_view expected) const {
  if (find(key) != nullptr) {
    throw ConfigError("'{}' in the batch is a tensor, expected {}: batch[\"{}\"] returns it", key,
                      expected, key);
  }
  if (const List* const list = find_list(key)) {
    throw ConfigError(
        "'{}' in the batch is a list of {} tensors, expected {}: batch.list(\"{}\") returns it",
        key, list->size(), expected, key);
  }
  if (find_nested(key) != nullptr) {
    throw ConfigError(
        "'{}' in the batch is a nested batch, expected {}: batch.nested(\"{}\") returns it", key,
        expected, key);
  }
  throw ConfigError("no '{}' in the batch; {}", key, suggest(key, keys()));
}

const torch::Tensor& Batch::operator[](std::string_view key) const {
  const torch::Tensor* const found = find(key);
  if (found == nullptr) fail_to_find(key, "a tensor");
  return *found;
}

const Batch::List& Batch::list(std::string_view key) const {
  const List* const found = find_list(key);
  if (found == nullptr) fail_to_find(key, "a list of tensors");
  return *found;
}

const Batch& Batch::nested(std::string_view key) const {
  const Batch* const found = find_nested(key);
  if (found == nullptr) fail_to_find(key, "a nested batch");
  return *found;
}

const torch::Tensor* Batch::find(std::string_view key) const {
  return find_in(entries_, key);
}

const Batch::List* Batch::find_list(std::string_view key) const {
  return find_in(lists_, key);
}

const Batch* Batch::find_nested(std::string_view key) const {
  return find_in(nested_, key);
}

void Batch::set(std::string_view key, torch::Tensor tensor) {
  erase_in(lists_, key);
  erase_in(nested_, key);
  set_in(entries_, key, std::move(tensor));
}

void Batch::set(std::string_view key, List list) {
  erase_in(entries_, key);
  erase_in(nested_, key);
  set_in(lists_, key, std::move(list));
}

void Batch::set(std::string_view key, Batch nested) {
  erase_in(entries_, key);
  erase_in(lists_, key);
  set_in(nested_, key, std::move(nested));
}

void Batch::update(Batch other) {
  for (auto& [key, tensor] : other.entries_) set(key, std::move(tensor));
  for (auto& [key, list] : other.lists_) set(key, std::move(list));
  for (auto& [key, nested] : other.nested_) set(key, std::move(nested));
}

bool Batch::contains(std::string_view key) const {
  return find(key) != nullptr || find_list(key) != nullptr || find_nested(key) != nullptr;
}

std::vector<std::string> Batch::keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, tensor] : entries_) keys.push_back(key);
  for (const auto& [key, list] : lists_) keys.push_back(key);
  for (const auto& [key, nested] : nested_) keys.push_back(key);
  return keys;
}

std::int64_t Batch::size() const {
  if (!entries_.empty()) {
    const torch::Tensor& first = entries_.front().second;
    return first.dim() == 0 ? 0 : first.size(0);
  }
  if (!lists_.empty()) return static_cast<std::int64_t>(lists_.front().second.size());
  return nested_.empty() ? 0 : nested_.front().second.size();
}

void Batch::erase(std::string_view key) {
  erase_in(entries_, key);
  erase_in(lists_, key);
  erase_in(nested_, key);
}

Batch Batch::to(torch::Device device) const {
  const auto moved_tensor = [&](const torch::Tensor& tensor) {
    return tensor.to(device, /*non_blocking=*/true);
  };
  Batch moved = *this;
  for (auto& [key, tensor] : moved.entries_) tensor = moved_tensor(tensor);
  for (auto& [key, list] : moved.lists_) {
    for (torch::Tensor& tensor : list) tensor = moved_tensor(tensor);
  }
  for (auto& [key, nested] : moved.nested_) nested = nested.to(device);
  return moved;
}

}  // namespace lockstep

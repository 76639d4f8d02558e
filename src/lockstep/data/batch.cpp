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
  entries.emplace_back(key, std::move(value));
}

template <typename T>
void erase_in(std::vector<std::pair<std::string, T>>& entries, std::string_view key) {
  std::erase_if(entries, [&](const auto& entry) { return entry.first == key; });
}

}  // namespace

const Batch::Others Batch::kNone = {};

Batch::Batch(const Batch& other) : entries_(other.entries_) {
  if (other.others_ != nullptr) others_ = std::make_unique<Others>(*other.others_);
}

Batch& Batch::operator=(const Batch& other) {
  return *this = Batch(other);
}

Batch::Others& Batch::make_others() {
  if (others_ == nullptr) others_ = std::make_unique<Others>();
  return *others_;
}

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
  return find_in(lists(), key);
}

const Batch* Batch::find_nested(std::string_view key) const {
  return find_in(nested_batches(), key);
}

void Batch::set(std::string_view key, torch::Tensor tensor) {
  // Enough for "features", "targets", "logits" and "loss", with one allocation.
  constexpr std::size_t kUsual = 4;
  erase_other(key);
  if (entries_.empty()) entries_.reserve(kUsual);
  set_in(entries_, key, std::move(tensor));
}

void Batch::set(std::string_view key, List list) {
  erase_in(entries_, key);
  Others& others = make_others();
  erase_in(others.nested, key);
  set_in(others.lists, key, std::move(list));
}

void Batch::set(std::string_view key, Batch nested) {
  erase_in(entries_, key);
  Others& others = make_others();
  erase_in(others.lists, key);
  set_in(others.nested, key, std::move(nested));
}

void Batch::update(Batch other) {
  for (auto& [key, tensor] : other.entries_) set(key, std::move(tensor));
  if (other.others_ == nullptr) return;
  for (auto& [key, list] : other.others_->lists) set(key, std::move(list));
  for (auto& [key, nested] : other.others_->nested) set(key, std::move(nested));
}

bool Batch::contains(std::string_view key) const {
  return find(key) != nullptr || find_list(key) != nullptr || find_nested(key) != nullptr;
}

std::vector<std::string> Batch::keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, tensor] : entries_) keys.push_back(key);
  for (const auto& [key, list] : lists()) keys.push_back(key);
  for (const auto& [key, nested] : nested_batches()) keys.push_back(key);
  return keys;
}

std::int64_t Batch::size() const {
  if (!entries_.empty()) {
    const torch::Tensor& first = entries_.front().second;
    return first.dim() == 0 ? 0 : first.size(0);
  }
  if (!lists().empty()) return static_cast<std::int64_t>(lists().front().second.size());
  return nested_batches().empty() ? 0 : nested_batches().front().second.size();
}

void Batch::erase(std::string_view key) {
  erase_in(entries_, key);
  erase_other(key);
}

void Batch::erase_other(std::string_view key) {
  if (others_ == nullptr) return;
  erase_in(others_->lists, key);
  erase_in(others_->nested, key);
}

Batch Batch::to(torch::Device device) const {
  // From ordinary memory, a copy to a GPU waits for all that the GPU has to do before it. From
  // pinned memory it does not. LibTorch keeps that memory until the copy is done, and then reuses
  // it. pin_memory() would return a tensor as it is that is pinned already, and the caller may
  // change that one before the copy is done. It would also fail for an expanded tensor.
  //
  // A copy to the CPU is waited for. Otherwise its reader would find unfinished numbers.
  const auto moved_tensor = [&](const torch::Tensor& tensor) {
    const bool pins = device.is_cuda() && tensor.device().is_cpu() &&
                      tensor.layout() == torch::kStrided && tensor.numel() > 0;
    if (!pins) return tensor.to(device, /*non_blocking=*/device.is_cuda());
    const torch::Tensor pinned = torch::empty_like(tensor, tensor.options().pinned_memory(true));
    return pinned.copy_(tensor).to(device, /*non_blocking=*/true);
  };
  Batch moved = *this;
  for (auto& [key, tensor] : moved.entries_) tensor = moved_tensor(tensor);
  if (moved.others_ == nullptr) return moved;
  for (auto& [key, list] : moved.others_->lists) {
    for (torch::Tensor& tensor : list) tensor = moved_tensor(tensor);
  }
  for (auto& [key, nested] : moved.others_->nested) nested = nested.to(device);
  return moved;
}

}  // namespace lockstep

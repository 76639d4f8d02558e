#include "lockstep/state/state_dict.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "lockstep/base/text.h"

namespace lockstep {
namespace {

template <typename T>
const T& expect(const StateDict& dict, std::string_view key) {
  const StateValue& value = dict.at(key);
  if (const T* found = value.get_if<T>()) return *found;
  throw CheckpointError("{}: expected {}, found {}", printable(key), StateValue(T()).kind(),
                        value.kind());
}

}  // namespace

StateDict::StateDict() = default;
StateDict::StateDict(std::initializer_list<Entry> entries) {
  for (const auto& [key, value] : entries) set(key, value);
}
StateDict::StateDict(std::vector<Entry> entries) {
  // The map has copies of the keys, not views, because entries move while they are collected.
  std::unordered_map<std::string, std::size_t> position;
  position.reserve(entries.size());
  for (Entry& entry : entries) {
    const auto [known, is_new] = position.try_emplace(entry.first, entries_.size());
    if (is_new) {
      entries_.push_back(std::move(entry));
    } else {
      entries_[known->second].second = std::move(entry.second);
    }
  }
}
StateDict::~StateDict() = default;
StateDict::StateDict(const StateDict&) = default;
StateDict::StateDict(StateDict&&) noexcept = default;
StateDict& StateDict::operator=(const StateDict&) = default;
StateDict& StateDict::operator=(StateDict&&) noexcept = default;

std::vector<StateDict::Entry>::const_iterator StateDict::begin() const {
  return entries_.begin();
}

std::vector<StateDict::Entry>::const_iterator StateDict::end() const {
  return entries_.end();
}

void StateDict::set(std::string key, StateValue value) {
  const auto found = std::ranges::find(entries_, key, &Entry::first);
  if (found != entries_.end()) {
    found->second = std::move(value);
  } else {
    entries_.emplace_back(std::move(key), std::move(value));
  }
}

void StateDict::erase(std::string_view key) {
  std::erase_if(entries_, [&](const Entry& entry) { return entry.first == key; });
}

bool StateDict::contains(std::string_view key) const {
  return std::ranges::find(entries_, key, &Entry::first) != entries_.end();
}

std::size_t StateDict::size() const {
  return entries_.size();
}

std::vector<std::string> StateDict::keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : entries_) keys.push_back(key);
  return keys;
}

const StateValue& StateDict::at(std::string_view key) const {
  const auto found = std::ranges::find(entries_, key, &Entry::first);
  if (found == entries_.end()) {
    throw CheckpointError("no '{}' in this state; {}", key, suggest(key, keys()));
  }
  return found->second;
}

template <>
bool StateDict::get<bool>(std::string_view key) const {
  return expect<bool>(*this, key);
}

template <>
std::int64_t StateDict::get<std::int64_t>(std::string_view key) const {
  return expect<std::int64_t>(*this, key);
}

template <>
int StateDict::get<int>(std::string_view key) const {
  const auto value = get<std::int64_t>(key);
  if (!std::in_range<int>(value)) {
    throw CheckpointError("{}: expected an integer of 32 bits, found {}", key, value);
  }
  return static_cast<int>(value);
}

template <>
double StateDict::get<double>(std::string_view key) const {
  if (const auto* integer = at(key).get_if<std::int64_t>()) return static_cast<double>(*integer);
  return expect<double>(*this, key);
}

template <>
std::string StateDict::get<std::string>(std::string_view key) const {
  return expect<std::string>(*this, key);
}

template <>
torch::Tensor StateDict::get<torch::Tensor>(std::string_view key) const {
  return expect<torch::Tensor>(*this, key);
}

template <>
StateList StateDict::get<StateList>(std::string_view key) const {
  return expect<StateList>(*this, key);
}

template <>
StateDict StateDict::get<StateDict>(std::string_view key) const {
  return expect<StateDict>(*this, key);
}

std::string StateValue::kind() const {
  constexpr const char* kNames[] = {"nothing",  "a boolean", "an integer", "a number",
                                    "a string", "a tensor",  "a list",     "a dictionary"};
  return kNames[value_.index()];
}

}  // namespace lockstep

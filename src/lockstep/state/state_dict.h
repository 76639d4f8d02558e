// The tree of values that a checkpoint holds: numbers, text, tensors, lists and dictionaries.
// Optimizers, schedulers, metrics and callbacks return their state as a StateDict, and are given it
// back on resume.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <torch/types.h>

#include "lockstep/base/error.h"

namespace lockstep {

class StateValue;
using StateList = std::vector<StateValue>;

// A dictionary that keeps the order in which its keys were set.
class StateDict {
 public:
  using Entry = std::pair<std::string, StateValue>;

  StateDict();
  StateDict(std::initializer_list<Entry> entries);
  // Takes many entries at once, in linear time. If a key is there twice, its last value counts.
  explicit StateDict(std::vector<Entry> entries);
  ~StateDict();
  StateDict(const StateDict&);
  StateDict(StateDict&&) noexcept;
  StateDict& operator=(const StateDict&);
  StateDict& operator=(StateDict&&) noexcept;

  void set(std::string key, StateValue value);
  void erase(std::string_view key);
  bool contains(std::string_view key) const;
  std::size_t size() const;
  std::vector<std::string> keys() const;

  // Throws CheckpointError, which suggests the nearest known key, if there is no such key.
  const StateValue& at(std::string_view key) const;

  // at(key) as a bool, std::int64_t (or int), double, std::string, torch::Tensor, StateList or
  // StateDict. Throws CheckpointError, which names the key and both types, if it has another type.
  template <typename T>
  T get(std::string_view key) const;

  template <typename T>
  T get_or(std::string_view key, T fallback) const {
    return contains(key) ? get<T>(key) : std::move(fallback);
  }

  std::vector<Entry>::const_iterator begin() const;
  std::vector<Entry>::const_iterator end() const;

 private:
  std::vector<Entry> entries_;
};

class StateValue {
 public:
  using Variant = std::variant<std::monostate, bool, std::int64_t, double, std::string,
                               torch::Tensor, StateList, StateDict>;

  StateValue() = default;
  StateValue(bool value) : value_(value) {}
  StateValue(std::string value) : value_(std::move(value)) {}
  StateValue(const char* value) : value_(std::string(value)) {}
  StateValue(torch::Tensor value) : value_(std::move(value)) {}
  StateValue(StateList value) : value_(std::move(value)) {}
  StateValue(StateDict value) : value_(std::move(value)) {}
  template <typename T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) StateValue(T value)
      : value_(static_cast<std::int64_t>(value)) {}
  template <typename T>
  requires std::is_floating_point_v<T> StateValue(T value) : value_(static_cast<double>(value)) {}

  const Variant& variant() const& { return value_; }
  Variant variant() && { return std::move(value_); }

  template <typename T>
  const T* get_if() const {
    return std::get_if<T>(&value_);
  }

  // "an integer", "a tensor", ... for messages.
  std::string kind() const;

 private:
  Variant value_;
};

template <>
bool StateDict::get<bool>(std::string_view key) const;
template <>
std::int64_t StateDict::get<std::int64_t>(std::string_view key) const;
template <>
int StateDict::get<int>(std::string_view key) const;
template <>
double StateDict::get<double>(std::string_view key) const;  // an integer is accepted, too
template <>
std::string StateDict::get<std::string>(std::string_view key) const;
template <>
torch::Tensor StateDict::get<torch::Tensor>(std::string_view key) const;
template <>
StateList StateDict::get<StateList>(std::string_view key) const;
template <>
StateDict StateDict::get<StateDict>(std::string_view key) const;

}  // namespace lockstep

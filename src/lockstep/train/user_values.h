// The user's own values in the state of a run, by key. A value may have any copyable type.
//
//   state.user.set("ema", 0.5);
//   state.user.get<double>("ema");
//
// Each rank has its own values. Truth values, numbers, text, tensors, StateList and StateDict are
// saved in checkpoints: rank 0's, and a resumed run gives them to all ranks before on_run_start. So
// a first value is set with
//
//   if (!state.user.contains("ema")) state.user.set("ema", 0.5);
//
// A checkpoint cannot hold values of other types. When one is left out, a warning says so.
#pragma once

#include <any>
#include <concepts>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "lockstep/state/state_dict.h"

namespace lockstep {

// Integers that are numbers, not characters.
template <typename T>
concept SavedInteger = std::integral<T> && !std::same_as<T, bool> && !std::same_as<T, char> &&
                       !std::same_as<T, wchar_t> && !std::same_as<T, char8_t> &&
                       !std::same_as<T, char16_t> && !std::same_as<T, char32_t>;

// The types that get() returns from a checkpoint.
template <typename T>
concept SavedValue = std::same_as<T, bool> || SavedInteger<T> || std::floating_point<T> ||
    std::same_as<T, std::string> || std::same_as<T, torch::Tensor> || std::same_as<T, StateList> ||
    std::same_as<T, StateDict>;

class UserValues {
 public:
  // Replaces the value of that key, also one of another type. Throws Error for an integer that does
  // not fit into 64 bits with a sign.
  template <typename T>
  void set(const std::string& key, T value) {
    static_assert(std::copy_constructible<T>, "a value in state.user must be copyable");
    if constexpr (SavedInteger<T>) {
      if (!std::in_range<std::int64_t>(value)) fail_range(key, std::to_string(value));
      set_saved(key, value);
    } else if constexpr (SavedValue<T>) {
      set_saved(key, std::move(value));
    } else if constexpr (std::convertible_to<T, std::string_view>) {
      set_saved(key, std::string(std::string_view(value)));
    } else {
      saved_.erase(key);
      others_[key] = std::move(value);
    }
  }

  // Throws Error, which names the nearest key, or both types, if there is no value of this key and
  // type. An integer may be read as a number.
  template <SavedValue T>
  T get(std::string_view key) const;
  template <typename T>
  requires(!SavedValue<T>) const T& get(std::string_view key) const;

  // The value, or `fallback` if there is no such key.
  template <typename T>
  T get_or(std::string_view key, T fallback) const {
    return contains(key) ? get<T>(key) : std::move(fallback);
  }

  bool contains(std::string_view key) const;
  void erase(std::string_view key);
  std::vector<std::string> keys() const;

  // Copies of the values that a checkpoint can hold: a tensor that is changed in place later stays
  // as it was in the copy. Warns once of each of the others.
  StateDict state() const;
  void load_state(const StateDict& state);

 private:
  void set_saved(const std::string& key, StateValue value);
  // Throws Error, in which `wanted` is the type that get() asks for.
  const StateValue& saved(std::string_view key, const std::string& wanted) const;
  const std::any& other(std::string_view key, const std::string& wanted) const;
  [[noreturn]] void fail_missing(std::string_view key, std::string_view hint) const;
  [[noreturn]] static void fail_type(std::string_view key, const std::string& held,
                                     const std::string& wanted);
  [[noreturn]] static void fail_range(std::string_view key, const std::string& value);
  static std::string type_name(const std::type_info& type);

  StateDict saved_;
  std::map<std::string, std::any, std::less<>> others_;
};

template <SavedValue T>
T UserValues::get(std::string_view key) const {
  if constexpr (SavedInteger<T>) {
    const std::string wanted = StateValue(std::int64_t()).kind();
    const StateValue& value = saved(key, wanted);
    const auto* const held = value.get_if<std::int64_t>();
    if (held == nullptr) fail_type(key, value.kind(), wanted);
    if (!std::in_range<T>(*held)) fail_range(key, std::to_string(*held));
    return static_cast<T>(*held);
  } else if constexpr (std::floating_point<T>) {
    const std::string wanted = StateValue(double()).kind();
    const StateValue& value = saved(key, wanted);
    if (const auto* const integer = value.get_if<std::int64_t>()) return static_cast<T>(*integer);
    const auto* const held = value.get_if<double>();
    if (held == nullptr) fail_type(key, value.kind(), wanted);
    return static_cast<T>(*held);
  } else {
    const std::string wanted = StateValue(T()).kind();
    const StateValue& value = saved(key, wanted);
    const auto* const held = value.get_if<T>();
    if (held == nullptr) fail_type(key, value.kind(), wanted);
    return *held;
  }
}

template <typename T>
requires(!SavedValue<T>) const T& UserValues::get(std::string_view key) const {
  static_assert(!std::convertible_to<T, std::string_view>, "text is read as std::string");
  const std::string wanted = "a " + type_name(typeid(T));
  const std::any& value = other(key, wanted);
  const auto* const held = std::any_cast<T>(&value);
  if (held == nullptr) fail_type(key, "a " + type_name(value.type()), wanted);
  return *held;
}

}  // namespace lockstep

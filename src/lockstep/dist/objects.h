// Sends objects from rank to rank: text, a StateDict, numbers and plain structs, every class with
// state() and load_state(), and vectors and maps (std::map<std::string, T>) of all these.
//
//   struct Score { double loss; std::int64_t samples; };
//   for (const Score& score : dist::all_gather_object(Score{loss, n})) …
//
//   const auto config = dist::broadcast_object(dist::is_primary() ? read(file) : std::string());
//
// For another type, specialise ObjectFormat. All ranks must use the same type, and the same build
// of the program: a struct is sent as it is in memory.
#pragma once

#include <concepts>
#include <cstring>
#include <map>
#include <ranges>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/state/state_dict.h"

namespace lockstep {
class Model;
}

namespace lockstep::dist {

// How objects of a type become bytes and are made of bytes again:
//
//   template <>
//   struct ObjectFormat<Mine> {
//     static std::string to_bytes(const Mine& object);
//     static Mine from_bytes(std::string bytes);  // may throw
//   };
template <typename T>
struct ObjectFormat;

// A type that has an ObjectFormat.
template <typename T>
concept SendableObject = requires(const T& object, std::string bytes) {
  { ObjectFormat<T>::to_bytes(object) } -> std::same_as<std::string>;
  { ObjectFormat<T>::from_bytes(std::move(bytes)) } -> std::same_as<T>;
};

template <>
struct ObjectFormat<std::string> {
  static std::string to_bytes(const std::string& object) { return object; }
  static std::string from_bytes(std::string bytes) { return bytes; }
};

// Tensors are received on the CPU.
template <>
struct ObjectFormat<StateDict> {
  static std::string to_bytes(const StateDict& object);
  static StateDict from_bytes(std::string bytes);
};

// A model cannot be made from its state alone. sync_params() sends its weights.
template <>
struct ObjectFormat<Model>;

template <typename T>
concept HasState = std::default_initializable<T> &&
    requires(const T& object, T& target, const StateDict& state) {
  { object.state() } -> std::same_as<StateDict>;
  target.load_state(state);
};

template <HasState T>
struct ObjectFormat<T> {
  static std::string to_bytes(const T& object) {
    return ObjectFormat<StateDict>::to_bytes(object.state());
  }
  static T from_bytes(std::string bytes) {
    T object;
    object.load_state(ObjectFormat<StateDict>::from_bytes(std::move(bytes)));
    return object;
  }
};

// Pointers and views would be sent without the data that they point to.
template <typename T>
concept PlainObject =
    std::is_trivially_copyable_v<T> && std::default_initializable<T> && !std::is_pointer_v<T> &&
    !std::ranges::view<T> && !HasState<T>;

template <PlainObject T>
struct ObjectFormat<T> {
  static std::string to_bytes(const T& object) {
    return std::string(reinterpret_cast<const char*>(&object), sizeof object);
  }
  static T from_bytes(std::string bytes) {
    if (bytes.size() != sizeof(T)) {
      throw CommError("expected {} bytes, got {}", sizeof(T), bytes.size());
    }
    T object;
    std::memcpy(&object, bytes.data(), sizeof object);
    return object;
  }
};

template <PlainObject T>
requires(!std::same_as<T, bool>)  // see below
    struct ObjectFormat<std::vector<T>> {
  static std::string to_bytes(const std::vector<T>& object) {
    if (object.empty()) return "";
    return std::string(reinterpret_cast<const char*>(object.data()), object.size() * sizeof(T));
  }
  static std::vector<T> from_bytes(std::string bytes) {
    if (bytes.size() % sizeof(T) != 0) {
      throw CommError("expected a multiple of {} bytes, got {}", sizeof(T), bytes.size());
    }
    std::vector<T> object(bytes.size() / sizeof(T));
    if (!object.empty()) std::memcpy(object.data(), bytes.data(), bytes.size());
    return object;
  }
};

namespace detail {

// Several texts as one, and back. Throws CommError if the bytes are not the result of pack().
std::string pack(const std::vector<std::string>& texts);
std::vector<std::string> unpack(const std::string& bytes);

}  // namespace detail

// Also std::vector<bool>, which is not an array.
template <typename T>
requires(SendableObject<T> &&
         (!PlainObject<T> || std::same_as<T, bool>)) struct ObjectFormat<std::vector<T>> {
  static std::string to_bytes(const std::vector<T>& object) {
    std::vector<std::string> parts;
    for (const auto& part : object) parts.push_back(ObjectFormat<T>::to_bytes(part));
    return detail::pack(parts);
  }
  static std::vector<T> from_bytes(std::string bytes) {
    std::vector<T> object;
    for (std::string& part : detail::unpack(bytes)) {
      object.push_back(ObjectFormat<T>::from_bytes(std::move(part)));
    }
    return object;
  }
};

template <SendableObject T>
struct ObjectFormat<std::map<std::string, T>> {
  static std::string to_bytes(const std::map<std::string, T>& object) {
    std::vector<std::string> parts;
    for (const auto& [key, value] : object) {
      parts.push_back(key);
      parts.push_back(ObjectFormat<T>::to_bytes(value));
    }
    return detail::pack(parts);
  }
  static std::map<std::string, T> from_bytes(std::string bytes) {
    std::vector<std::string> parts = detail::unpack(bytes);
    if (parts.size() % 2 != 0) {
      throw CommError("expected keys and values, got {} parts", parts.size());
    }
    std::map<std::string, T> object;
    for (std::size_t i = 0; i < parts.size(); i += 2) {
      object.emplace(std::move(parts[i]), ObjectFormat<T>::from_bytes(std::move(parts[i + 1])));
    }
    return object;
  }
};

namespace detail {

std::vector<std::string> gather_bytes(const std::string& bytes, int root);
std::vector<std::string> all_gather_bytes(const std::string& bytes);
std::string broadcast_bytes(const std::string& bytes, int root);

// Throws CommError, which names the rank, if the bytes cannot be read.
template <SendableObject T>
T received(std::string bytes, int rank) try {
  return ObjectFormat<T>::from_bytes(std::move(bytes));
} catch (const std::exception& error) {
  throw CommError("object of rank {}: {}", rank, message_of(error));
}

template <SendableObject T>
std::vector<T> all_received(std::vector<std::string> bytes) {
  std::vector<T> objects;
  for (std::string& one : bytes) {
    const int rank = static_cast<int>(objects.size());
    objects.push_back(received<T>(std::move(one), rank));
  }
  return objects;
}

}  // namespace detail

// Collective. Every rank's object, in the order of the ranks. Sizes may differ. gather_object()
// returns them on `root` and nothing on other ranks; all_gather_object() returns them on all ranks.
template <SendableObject T>
std::vector<T> gather_object(const T& object, int root = 0) {
  return detail::all_received<T>(detail::gather_bytes(ObjectFormat<T>::to_bytes(object), root));
}

template <SendableObject T>
std::vector<T> all_gather_object(const T& object) {
  return detail::all_received<T>(detail::all_gather_bytes(ObjectFormat<T>::to_bytes(object)));
}

// Collective. The object of `root`, on all ranks. The objects of other ranks are ignored.
template <SendableObject T>
T broadcast_object(const T& object, int root = 0) {
  return detail::received<T>(detail::broadcast_bytes(ObjectFormat<T>::to_bytes(object), root),
                             root);
}

}  // namespace lockstep::dist

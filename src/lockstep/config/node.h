// A document as it was written: scalars as text, lists, mappings, each with the file and line it
// comes from, so that an error can say where. Nothing is typed yet: what a scalar means is up to
// who reads it (value.h).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep::config {

// Where a node was written: "mnist.yml" and its line from 1, or the command line without one.
struct SourceLocation {
  std::string source = {};
  int line = 0;
};

// A ConfigError that says where already.
class LocatedError : public ConfigError {
  using ConfigError::ConfigError;
};

class Node {
 public:
  enum class Kind { kNull, kScalar, kList, kMap };
  using Entry = std::pair<std::string, Node>;

  Node() = default;  // null

  // `plain`: written without quotes, so that it may be a number, true or false.
  static Node scalar(std::string text, bool plain);
  static Node text(std::string text) { return scalar(std::move(text), false); }
  static Node list(std::vector<Node> items = {});
  static Node map(std::vector<Entry> entries = {});

  Kind kind() const { return kind_; }
  bool is_null() const { return kind_ == Kind::kNull; }
  bool is_scalar() const { return kind_ == Kind::kScalar; }
  bool is_list() const { return kind_ == Kind::kList; }
  bool is_map() const { return kind_ == Kind::kMap; }

  const std::string& text() const { return text_; }
  bool is_plain() const { return plain_; }
  // Of a list or of a mapping; empty for everything else.
  const std::vector<Node>& items() const { return items_; }
  std::vector<Node>& items() { return items_; }
  const std::vector<Entry>& entries() const { return entries_; }
  std::vector<Entry>& entries() { return entries_; }

  // A mapping's value, or nullptr.
  const Node* find(std::string_view key) const;
  Node* find(std::string_view key);
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  std::vector<std::string> keys() const;
  // Replaces the value of a key, or adds it at the end.
  Node& set(std::string_view key, Node value);
  void erase(std::string_view key);

  const SourceLocation& place() const { return place_; }
  void set_place(SourceLocation place) { place_ = std::move(place); }
  // "loaders/train/batch_size"; empty for a whole document.
  const std::string& path() const { return path_; }

  // Tells this node and all below it their paths.
  void set_paths(const std::string& path = "");

  // "the number 3", "the text 'abc'", "a list", ... for messages.
  std::string describe() const;

  // "mnist.yml:12: loaders/train/batch_size", as much of it as is known.
  std::string where() const;

  // Throws a LocatedError: where(), and the message.
  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw LocatedError(where() + ": " + fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  Kind kind_ = Kind::kNull;
  std::string text_;
  bool plain_ = false;
  std::vector<Node> items_;
  std::vector<Entry> entries_;
  SourceLocation place_;
  std::string path_;
};

// Lays `over` over `base`: mappings are merged key by key, everything else is replaced. A mapping
// that names another _target_ replaces the whole of the old one, whose options are not its own.
void merge(Node& base, const Node& over);

}  // namespace lockstep::config

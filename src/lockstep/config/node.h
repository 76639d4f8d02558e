// A document as it was written: scalars as text, lists and mappings. Each has the file and line it
// comes from, so that an error can name them. Scalars have no type yet: the code that reads a
// scalar decides what it means (value.h).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep::config {

// Where a node was written: "mnist.yml" and a line, counted from 1, or the command line and 0.
struct SourceLocation {
  std::string source = {};
  int line = 0;
};

// A ConfigError whose message already has the location.
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
  // The items of a list and the entries of a mapping. Empty for other kinds.
  const std::vector<Node>& items() const { return items_; }
  std::vector<Node>& items() { return items_; }
  const std::vector<Entry>& entries() const { return entries_; }
  std::vector<Entry>& entries() { return entries_; }

  // The value of a key of a mapping, or nullptr.
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

  // Sets the paths of this node and of all nodes below it.
  void set_paths(const std::string& path = "");

  // "the number 3", "the text 'abc'", "a list", ... for messages.
  std::string describe() const;

  // "mnist.yml:12: loaders/train/batch_size", or the part of this that is known.
  std::string where() const;

  // Throws a LocatedError with where() and the message.
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

// Merges `over` into `base`: mappings are merged key by key, everything else is replaced. A mapping
// that names another _target_ replaces the whole old mapping, because the old options belong to
// another target.
void merge(Node& base, const Node& over);

}  // namespace lockstep::config

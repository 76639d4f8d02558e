#include "lockstep/config/node.h"

#include <algorithm>

#include "lockstep/config/value.h"

namespace lockstep::config {

Node Node::scalar(std::string text, bool plain) {
  Node node;
  node.kind_ = Kind::kScalar;
  node.text_ = std::move(text);
  node.plain_ = plain;
  return node;
}

Node Node::list(std::vector<Node> items) {
  Node node;
  node.kind_ = Kind::kList;
  node.items_ = std::move(items);
  return node;
}

Node Node::map(std::vector<Entry> entries) {
  Node node;
  node.kind_ = Kind::kMap;
  node.entries_ = std::move(entries);
  return node;
}

const Node* Node::find(std::string_view key) const {
  const auto found = std::ranges::find(entries_, key, &Entry::first);
  return found == entries_.end() ? nullptr : &found->second;
}

Node* Node::find(std::string_view key) {
  return const_cast<Node*>(std::as_const(*this).find(key));
}

std::vector<std::string> Node::keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : entries_) keys.push_back(key);
  return keys;
}

Node& Node::set(std::string_view key, Node value) {
  if (Node* const found = find(key)) return *found = std::move(value);
  return entries_.emplace_back(std::string(key), std::move(value)).second;
}

void Node::erase(std::string_view key) {
  std::erase_if(entries_, [&](const Entry& entry) { return entry.first == key; });
}

void Node::set_paths(const std::string& path) {
  path_ = path;
  const std::string prefix = path.empty() ? "" : path + "/";
  for (std::size_t i = 0; i < items_.size(); ++i) items_[i].set_paths(prefix + std::to_string(i));
  for (auto& [key, value] : entries_) value.set_paths(prefix + key);
}

std::string Node::describe() const {
  switch (kind_) {
    case Kind::kNull:
      return "nothing";
    case Kind::kList:
      return items_.empty() ? "an empty list" : "a list";
    case Kind::kMap:
      return entries_.empty() ? "an empty mapping" : "a mapping";
    case Kind::kScalar:
      break;
  }
  if (plain_ && parse_bool(text_)) return text_;
  if (plain_ && parse_double(text_)) return "the number " + text_;
  constexpr std::size_t kLongest = 60;
  if (text_.size() > kLongest) return "the text '" + text_.substr(0, kLongest) + "…'";
  return "the text '" + text_ + "'";
}

std::string Node::where() const {
  std::string where = place_.source;
  if (place_.line > 0) where += fmt::format(":{}", place_.line);
  if (!path_.empty()) where += (where.empty() ? "" : ": ") + path_;
  return where.empty() ? "config" : where;
}

void merge(Node& base, const Node& over) {
  const bool both_maps = base.is_map() && over.is_map();
  const Node* const before = base.find("_target_");
  const Node* const after = over.find("_target_");
  const bool retargeted =
      after != nullptr && (before == nullptr || before->text() != after->text());
  if (!both_maps || retargeted) {
    base = over;
    return;
  }
  for (const auto& [key, value] : over.entries()) {
    if (Node* const known = base.find(key)) {
      merge(*known, value);
    } else {
      base.set(key, value);
    }
  }
}

}  // namespace lockstep::config

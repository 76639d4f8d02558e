#include "lockstep/config/yaml.h"

#include <map>
#include <optional>
#include <sstream>

#include <yaml-cpp/emitter.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include "lockstep/base/file.h"
#include "lockstep/base/text.h"

namespace lockstep::config {
namespace {

namespace fs = std::filesystem;

std::size_t count_nodes(const Node& node) {
  std::size_t count = 1;
  for (const Node& item : node.items()) count += count_nodes(item);
  for (const auto& [key, value] : node.entries()) count += count_nodes(value);
  return count;
}

// Whether the bytes are UTF-8. Overlong forms are not checked.
bool is_utf8(std::string_view text) {
  int following = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (following > 0) {
      if ((byte & 0xC0) != 0x80) return false;
      --following;
    } else if (byte >= 0x80) {
      if ((byte & 0xE0) == 0xC0)
        following = 1;
      else if ((byte & 0xF0) == 0xE0)
        following = 2;
      else if ((byte & 0xF8) == 0xF0)
        following = 3;
      else
        return false;
    }
  }
  return following == 0;
}

// The first line, counted from 1, that is indented by a tab. YAML does not allow that, JSON does.
std::optional<int> first_tab(std::string_view text) {
  int line = 1;
  bool indented = true;  // only spaces so far in the line
  for (const char c : text) {
    if (indented && c == '\t') return line;
    indented = c == '\n' || (indented && c == ' ');
    if (c == '\n') ++line;
  }
  return std::nullopt;
}

std::size_t depth_of(const Node& node) {
  std::size_t deepest = 0;
  for (const Node& item : node.items()) deepest = std::max(deepest, depth_of(item));
  for (const auto& [key, value] : node.entries()) deepest = std::max(deepest, depth_of(value));
  return deepest + 1;
}

// Builds the document from the events of the parser. It does not use the nodes of yaml-cpp, because
// events come one by one, so that an alias bomb is noticed before it is expanded.
class Builder final : public YAML::EventHandler {
 public:
  explicit Builder(std::string source) : source_(std::move(source)) {}

  Node take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    complete(placed(Node(), mark), anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto known = anchors_.find(anchor);
    // The parser refuses unknown names. So the anchor is known, but its node is not complete: the
    // alias is inside of that node.
    if (known == anchors_.end()) {
      fail(mark, "an alias of the node that it is in");
    }
    count(mark, count_nodes(known->second) - 1);
    if (open_.size() + depth_of(known->second) > kDeepest) fail_too_deep(mark);
    complete(known->second, 0);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    const bool plain = tag == "?" || tag.empty();
    check_tag(mark, tag);
    if (is_key_next()) {
      open_.back().key = value;
      open_.back().key_line = mark.line + 1;
      open_.back().is_merge = plain && value == "<<";
      if (anchor != 0) anchors_[anchor] = placed(Node::scalar(value, plain), mark);
      check_unique(mark);
      return;
    }
    complete(placed(Node::scalar(value, plain), mark), anchor);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    begin(placed(Node::list(), mark), mark, tag, anchor);
  }
  void OnSequenceEnd() override { end(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    begin(placed(Node::map(), mark), mark, tag, anchor);
  }
  void OnMapEnd() override { end(); }

 private:
  struct OpenNode {
    Node node;
    YAML::anchor_t anchor = 0;
    std::optional<std::string> key = {};  // a key without its value yet
    int key_line = 0;
    bool is_merge = false;
    std::vector<Node> merged = {};  // the mappings that "<<" names
  };

  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& message) const {
    throw LocatedError("{}:{}: {}", source_, mark.line + 1, message);
  }
  [[noreturn]] void fail_too_deep(const YAML::Mark& mark) const {
    fail(mark, fmt::format("nested more than {} deep", kDeepest));
  }

  Node placed(Node node, const YAML::Mark& mark) const {
    node.set_place({.source = source_, .line = mark.line + 1});
    return node;
  }

  void count(const YAML::Mark& mark, std::size_t nodes) {
    nodes_ += nodes;
    if (nodes_ > kMostNodes) {
      fail(mark, fmt::format("more than {} values, those that aliases stand for included",
                             with_thousands(kMostNodes)));
    }
  }

  void check_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (!tag.empty() && tag != "?" && tag != "!") {
      fail(mark, fmt::format("tag '{}': tags are not supported", tag));
    }
  }

  bool is_key_next() const {
    return !open_.empty() && open_.back().node.is_map() && !open_.back().key;
  }

  void check_unique(const YAML::Mark& mark) const {
    const OpenNode& map = open_.back();
    if (map.node.entries().size() >= kMostKeys) {
      fail(mark, fmt::format("a mapping of more than {} keys", with_thousands(kMostKeys)));
    }
    if (const Node* const before = map.node.find(*map.key)) {
      fail(mark, fmt::format("the key '{}' comes twice, first in line {}", *map.key,
                             before->place().line));
    }
  }

  void begin(Node node, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    check_tag(mark, tag);
    if (is_key_next()) fail(mark, "expected a key of text, got a list or a mapping");
    if (open_.size() >= kDeepest) fail_too_deep(mark);
    count(mark, 1);
    open_.push_back({.node = std::move(node), .anchor = anchor});
  }

  void end() {
    OpenNode done = std::move(open_.back());
    open_.pop_back();
    for (const Node& merged : done.merged) {
      for (const auto& [key, value] : merged.entries()) {
        if (!done.node.contains(key)) done.node.set(key, value);
      }
    }
    attach(std::move(done.node), done.anchor);
  }

  void complete(Node node, YAML::anchor_t anchor) {
    if (is_key_next()) {
      throw LocatedError("{}:{}: expected a key of text, got {}", source_, node.place().line,
                         node.describe());
    }
    count({}, 1);
    attach(std::move(node), anchor);
  }

  void attach(Node node, YAML::anchor_t anchor) {
    if (anchor != 0) anchors_[anchor] = node;
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    OpenNode& parent = open_.back();
    if (parent.node.is_list()) {
      parent.node.items().push_back(std::move(node));
      return;
    }
    if (parent.is_merge) {
      merge_into(parent, std::move(node));
    } else {
      // A user looks for the line of the key, not for that of the value.
      node.set_place({.source = source_, .line = parent.key_line});
      parent.node.set(*parent.key, std::move(node));
    }
    parent.key.reset();
    parent.is_merge = false;
  }

  void merge_into(OpenNode& parent, Node node) const {
    std::vector<Node> sources;
    if (node.is_list()) {
      sources = std::move(node.items());
    } else {
      sources.push_back(std::move(node));
    }
    for (Node& source : sources) {
      if (!source.is_map()) {
        throw LocatedError("{}:{}: <<: expected mappings to merge, got {}", source_,
                           parent.key_line, source.describe());
      }
      parent.merged.push_back(std::move(source));
    }
  }

  std::string source_;
  Node root_;
  std::vector<OpenNode> open_;
  std::map<YAML::anchor_t, Node> anchors_;
  std::size_t nodes_ = 0;
};

void emit(YAML::Emitter& out, const Node& node) {
  switch (node.kind()) {
    case Node::Kind::kNull:
      out << YAML::Null;
      return;
    case Node::Kind::kScalar:
      if (!node.is_plain()) out << YAML::DoubleQuoted;
      out << node.text();
      return;
    case Node::Kind::kList:
      if (node.items().empty()) out << YAML::Flow;
      out << YAML::BeginSeq;
      for (const Node& item : node.items()) emit(out, item);
      out << YAML::EndSeq;
      return;
    case Node::Kind::kMap:
      if (node.entries().empty()) out << YAML::Flow;
      out << YAML::BeginMap;
      for (const auto& [key, value] : node.entries()) {
        out << YAML::Key << key << YAML::Value;
        emit(out, value);
      }
      out << YAML::EndMap;
      return;
  }
}

}  // namespace

Node parse_yaml(std::string_view text, const std::string& source) {
  if (text.size() > kLargestFile) {
    throw LocatedError("{}: expected at most {}, got {}", source,
                       format_bytes(static_cast<double>(kLargestFile)),
                       format_bytes(static_cast<double>(text.size())));
  }
  // yaml-cpp would read bytes that it cannot decode as U+FFFD, and a zero byte as the end.
  if (text.find('\0') != std::string_view::npos) {
    throw LocatedError("{}: not a text file: it has a byte of zero", source);
  }
  if (!is_utf8(text)) throw LocatedError("{}: not UTF-8 text", source);
  std::istringstream stream{std::string(text)};
  try {
    YAML::Parser parser(stream);
    Builder builder(source);
    if (!parser.HandleNextDocument(builder)) return {};
    Node document = builder.take();
    if (Builder second(source); parser.HandleNextDocument(second)) {
      throw LocatedError("{}: expected one document, found a second one", source);
    }
    document.set_paths();
    return document;
  } catch (const YAML::Exception& error) {
    // The message of yaml-cpp does not mention the tab. It is about the entry after the tab, or a
    // later one.
    if (const auto line = first_tab(text); line && *line <= error.mark.line + 1) {
      throw LocatedError("{}:{}: a tab in the indentation; YAML is indented by spaces", source,
                         *line);
    }
    throw LocatedError("{}:{}: {}", source, error.mark.line + 1, error.msg);
  }
}

namespace {

Node load_file(const fs::path& path) {
  if (!fs::exists(path)) throw ConfigError("there is no such file");
  if (!fs::is_regular_file(path)) throw ConfigError("not a file");
  if (const auto size = fs::file_size(path); size > kLargestFile) {
    throw ConfigError("expected at most {}, got {}",
                      format_bytes(static_cast<double>(kLargestFile)),
                      format_bytes(static_cast<double>(size)));
  }
  Node document = parse_yaml(read_file(path), path.string());
  if (!document.is_map()) throw ConfigError("expected a mapping, got {}", document.describe());
  return document;
}

}  // namespace

Node load_yaml(const fs::path& path) {
  std::error_code ignored;
  const bool is_folder = fs::is_directory(path, ignored);
  const fs::path file = is_folder ? path / "config.yml" : path;
  if (is_folder && fs::status(file, ignored).type() == fs::file_type::not_found) {
    throw ConfigError("{}: there is no config.yml in this folder", path.string());
  }
  return reading<ConfigError>({.path = file}, [&] { return load_file(file); });
}

std::string to_yaml(const Node& node) {
  YAML::Emitter out;
  out.SetNullFormat(YAML::LowerNull);
  emit(out, node);
  return std::string(out.c_str()) + "\n";
}

}  // namespace lockstep::config

// The options of a target by name: an aggregate, and a list of its fields with a description of
// each. The list is used to read options, which reports all mistakes at once, and is what
// `lockstep targets` shows.
//
//   struct NetOptions { std::int64_t width = 64; bool bias = true; };
//   const std::vector<Field<NetOptions>> fields = {
//       {"width", &NetOptions::width, "of the hidden layer"},
//       {"bias", &NetOptions::bias, "whether layers have one"}};
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/config/node.h"
#include "lockstep/config/value.h"

namespace lockstep::config {

// The description of a field, which does not depend on its C++ type.
struct FieldInfo {
  std::string name;
  std::string type;
  std::string fallback;  // the default, as a user would write it; "" if it has none
  std::string about;
  bool required = false;
};

template <typename Options>
class Field {
 public:
  template <typename T>
  Field(std::string name, T Options::*member, std::string about)
      : info_{.name = std::move(name),
              .type = Value<T>::type(),
              .fallback = Value<T>::show(Options{}.*member),
              .about = std::move(about)},
        read_([member](Options& options, const Node& node) {
          options.*member = Value<T>::read(node);
        }) {}

  using Read = std::function<void(Options&, const Node&)>;
  Field(FieldInfo info, Read read) : info_(std::move(info)), read_(std::move(read)) {}

  // Makes a field that must be given.
  Field required() && {
    info_.required = true;
    info_.fallback.clear();
    return std::move(*this);
  }

  // The same field for an aggregate that has these options as a member.
  template <typename Outer>
  Field<Outer> inside(Options Outer::*member) const {
    return Field<Outer>(info_, [member, read = read_](Outer& outer, const Node& node) {
      read(outer.*member, node);
    });
  }

  // Gives the type another name, if that says more.
  Field named(std::string type) && {
    info_.type = std::move(type);
    return std::move(*this);
  }

  const FieldInfo& info() const { return info_; }
  void read(Options& options, const Node& node) const { read_(options, node); }

 private:
  FieldInfo info_;
  Read read_;
};

template <typename Options, typename T>
Field<Options> required(std::string name, T Options::*member, std::string about) {
  return Field<Options>(std::move(name), member, std::move(about)).required();
}

// Collects several mistakes into one error with one line per mistake. A mistake that is found twice
// is reported once.
class Mistakes {
 public:
  // Calls `read`. If it throws a ConfigError, the message is kept.
  template <typename F>
  void collect(F&& read) {
    try {
      read();
    } catch (const ConfigError& error) {
      add(error.what());
    }
  }
  void add(const std::string& message);
  bool empty() const { return messages_.empty(); }

  // Throws LocatedError with all mistakes, if there are any.
  void raise() const;

 private:
  std::vector<std::string> messages_;
};

// Adds a mistake for each key of `node` that is not in `known`, with the nearest known key.
void check_keys(const Node& node, const std::vector<std::string>& known, Mistakes& mistakes);

// Fields that are left out keep their defaults. `node` may also have the keys `more_keys`, which
// are not read.
template <typename Options>
Options read_fields(const Node& node, const std::vector<Field<Options>>& fields,
                    const std::vector<std::string>& more_keys = {}) {
  Options options;
  if (node.is_null() && fields.empty()) return options;
  if (!node.is_map() && !node.is_null()) {
    node.fail("expected a mapping of options, got {}", node.describe());
  }
  Mistakes mistakes;
  std::vector<std::string> known = more_keys;
  for (const auto& field : fields) known.push_back(field.info().name);
  check_keys(node, known, mistakes);
  for (const auto& field : fields) {
    const Node* const value = node.find(field.info().name);
    if (value != nullptr) {
      mistakes.collect([&] { field.read(options, *value); });
    } else if (field.info().required) {
      mistakes.add(node.where() + ": " + field.info().name + " is missing: " + field.info().type +
                   ", " + field.info().about);
    }
  }
  mistakes.raise();
  return options;
}

}  // namespace lockstep::config

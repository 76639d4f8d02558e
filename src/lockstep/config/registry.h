// The targets of one kind that a config can name by _target_, each with its options.
//
//   Registry<Shape> shapes("shape");
//   shapes.add<CircleOptions>("Circle", "Round.",
//                             {{"radius", &CircleOptions::radius, "from the middle"}},
//                             [](const CircleOptions& o) { return Shape::circle(o.radius); });
//   Shape shape = shapes.make(node);       // {_target_: Circle, radius: 2}
//
// A target without options may be written as its name only. A target with options may be written as
// the only key of a mapping, {Circle: {radius: 2}}.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/config/fields.h"
#include "lockstep/config/node.h"

namespace lockstep::config {

inline constexpr const char* kTargetKey = "_target_";

struct TargetInfo {
  std::string kind;
  std::string name;
  std::string about;
  std::vector<FieldInfo> fields;
};

struct NoOptions {};

// The target that a node names, and its options.
struct Target {
  std::string name;
  Node options;  // a mapping, without _target_
};

// Throws LocatedError if the node does not name a target of this kind.
Target target_of(const Node& node, const std::string& kind, const std::vector<std::string>& known);

// Throws LocatedError with the message of an error that was thrown while the target of `node` was
// made. If the message names an option, the location is that of the option.
[[noreturn]] void fail_making(const Node& node, const Node& options, const std::string& message);

// Makers may take arguments of the types `Context` in addition to their options.
template <typename Product, typename... Context>
class Registry {
 public:
  explicit Registry(std::string kind) : kind_(std::move(kind)) {}

  // Throws ConfigError if the name is already registered.
  template <typename Options, typename Make>
  void add(const std::string& name, const std::string& about,
           const std::vector<Field<Options>>& fields, Make make) {
    if (entries_.contains(name)) throw ConfigError("{} '{}' is registered twice", kind_, name);
    TargetInfo info{.kind = kind_, .name = name, .about = about, .fields = {}};
    for (const auto& field : fields) info.fields.push_back(field.info());
    order_.push_back(name);
    entries_.emplace(
        name,
        Entry{.info = std::move(info),
              .make = [fields, make](const Node& options, [[maybe_unused]] Context... context) {
                const auto read = read_fields(options, fields);
                if constexpr (std::is_invocable_v<Make, const Options&, Context...>) {
                  return Product(make(read, context...));
                } else {
                  return Product(make(read));
                }
              }});
  }

  // Adds a target without options.
  template <typename Make>
  void add(const std::string& name, const std::string& about, Make make) {
    add(name, about, std::vector<Field<NoOptions>>(),
        [make](const NoOptions&, [[maybe_unused]] Context... context) {
          if constexpr (std::is_invocable_v<Make, Context...>) {
            return Product(make(context...));
          } else {
            return Product(make());
          }
        });
  }

  // Makes the target that the node names. Throws LocatedError if anything in the node is wrong.
  Product make(const Node& node, Context... context) const {
    const Target target = target_of(node, kind_, names());
    try {
      return entries_.at(target.name).make(target.options, context...);
    } catch (const LocatedError&) {
      throw;
    } catch (const std::exception& error) {
      fail_making(node, target.options, error.what());
    }
  }

  const std::string& kind() const { return kind_; }
  // In the order in which they were added.
  const std::vector<std::string>& names() const { return order_; }
  bool contains(const std::string& name) const { return entries_.contains(name); }
  const TargetInfo& info(const std::string& name) const { return entries_.at(name).info; }

 private:
  struct Entry {
    TargetInfo info;
    std::function<Product(const Node&, Context...)> make;
  };

  std::string kind_;
  std::map<std::string, Entry> entries_;
  std::vector<std::string> order_;
};

}  // namespace lockstep::config

// Data sets that scale their samples (data/scaling.h), in configs. fitted.h passes the statistics
// on to other loaders; here predictions are scaled back.
#pragma once

#include <string>

#include "lockstep/config/node.h"
#include "lockstep/config/value.h"
#include "lockstep/data/batch.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/scaling.h"

namespace lockstep::config {

template <>
struct EnumNames<data::Normalization> {
  static constexpr const auto& names = data::kNormalizationNames;
};

// {kind: standard, shift: […], scale: […]}
template <>
struct Value<data::ChannelScaling> {
  static std::string type() { return "scaling (kind, shift, scale)"; }
  static data::ChannelScaling read(const Node& node);
  static std::string show(const data::ChannelScaling&) { return ""; }
};

// {features: {kind: standard, shift: […], scale: […]}, targets: {…}}
template <>
struct Value<data::Scaling> {
  static std::string type() { return "scaling (features and targets: kind, shift, scale)"; }
  static data::Scaling read(const Node& node);
  static std::string show(const data::Scaling&) { return ""; }
};

}  // namespace lockstep::config

namespace lockstep::recipe {

// As Value<data::Scaling> reads it, with all digits.
config::Node to_node(const data::Scaling& scaling);

// Scales outputs back that have as many values per sample as the targets. Other outputs, those that
// are not floating-point numbers, and outputs for data sets that scale nothing, are not changed.
// Throws DataError if it is not clear which values belong to which channel.
class OutputScaling {
 public:
  explicit OutputScaling(const data::Loader& loader);
  void undo(Batch& outputs) const;

 private:
  data::ChannelScaling scaling_;
  std::int64_t values_ = 0;  // of one target
};

}  // namespace lockstep::recipe

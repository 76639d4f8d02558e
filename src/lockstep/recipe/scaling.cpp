#include "lockstep/recipe/scaling.h"

#include <fmt/ranges.h>

#include "lockstep/base/error.h"
#include "lockstep/config/fields.h"

namespace lockstep::config {

data::ChannelScaling Value<data::ChannelScaling>::read(const Node& node) {
  using C = data::ChannelScaling;
  static const std::vector<Field<C>> fields = {required("kind", &C::kind, "how values were scaled"),
                                               {"shift", &C::shift, "one per channel"},
                                               {"scale", &C::scale, "one per channel"}};
  const C scaling = read_fields(node, fields);
  try {
    scaling.check();
  } catch (const ConfigError& error) {
    node.fail("{}", error.what());
  }
  return scaling;
}

data::Scaling Value<data::Scaling>::read(const Node& node) {
  using S = data::Scaling;
  static const std::vector<Field<S>> fields = {{"features", &S::features, "of the features"},
                                               {"targets", &S::targets, "of the targets"}};
  return read_fields(node, fields);
}

}  // namespace lockstep::config

namespace lockstep::recipe {
namespace {

using config::Node;

Node to_node(const std::vector<double>& numbers) {
  Node list = Node::list();
  for (const double number : numbers) {
    list.items().push_back(Node::scalar(config::show_double(number), true));
  }
  return list;
}

Node to_node(const data::ChannelScaling& scaling) {
  return Node::map({{"kind", Node::scalar(data::name_of(scaling.kind), true)},
                    {"shift", to_node(scaling.shift)},
                    {"scale", to_node(scaling.scale)}});
}

}  // namespace

Node to_node(const data::Scaling& scaling) {
  return Node::map(
      {{"features", to_node(scaling.features)}, {"targets", to_node(scaling.targets)}});
}

OutputScaling::OutputScaling(const data::Loader& loader)
    : scaling_(data::scaling_of(*loader.dataset()).targets) {
  if (scaling_.kind == data::Normalization::kNone) return;
  const auto readable = loader.dataset()->examples(1);
  if (readable.empty()) return;
  const Batch sample = loader.dataset()->sample(readable.front());
  if (const torch::Tensor* const targets = sample.find("targets")) values_ = targets->numel();
}

void OutputScaling::undo(Batch& outputs) const {
  if (values_ == 0) return;
  Batch scaled_back;
  for (const auto& [key, rows] : outputs) {
    if (!rows.is_floating_point() || rows.dim() == 0 || rows.size(0) == 0) continue;
    if (rows.numel() / rows.size(0) != values_) continue;
    const auto channels = static_cast<std::int64_t>(scaling_.shift.size());
    // A single channel may have any shape, also one without a dimension for it, such as [B, N, N].
    const bool has_channels = channels == 1 || rows.dim() == 2 || rows.size(1) == channels;
    if (!has_channels) {
      throw DataError(
          "output '{}': its shape [{}] has as many values as the targets, which are scaled, but "
          "its {} channels are not in dimension 1; let the model return [B, {}, …] or [B, {}]",
          key, fmt::join(rows.sizes(), ", "), channels, channels, values_);
    }
    scaled_back.set(key,
                    scaling_.undo(rows.reshape({rows.size(0), values_})).reshape(rows.sizes()));
  }
  outputs.update(std::move(scaled_back));
}

}  // namespace lockstep::recipe

#include "lockstep/base/check.h"
#include "lockstep/optim/flat_parameters.h"
#include "lockstep/optim/option_tables.h"
#include "lockstep/recipe/targets.h"
#include "lockstep/recipe/values.h"

namespace lockstep::recipe {
namespace {

using config::Field;
using config::Node;
using optim::ParameterSettings;

struct LayerSettings {
  std::optional<double> lr;
  std::optional<double> weight_decay;
  std::optional<double> lr_factor;
  std::optional<bool> frozen;
};

// Options of one of Lockstep's optimizers, and those that all of them have.
template <typename Base>
struct WithLayers : Base {
  bool no_bias_weight_decay = false;
  Node layers;
};

std::vector<ParameterSettings> read_layers(const Node& layers) {
  if (layers.is_null()) return {};
  if (!layers.is_map()) {
    layers.fail("expected a mapping of parameters' names to settings, got {}", layers.describe());
  }
  std::vector<ParameterSettings> settings;
  for (const auto& [names, node] : layers.entries()) {
    const auto read = config::read_fields<LayerSettings>(
        node, {{"lr", &LayerSettings::lr, ""},
               {"weight_decay", &LayerSettings::weight_decay, ""},
               {"lr_factor", &LayerSettings::lr_factor, ""},
               {"frozen", &LayerSettings::frozen, ""}});
    settings.push_back({.names = names,
                        .lr = read.lr,
                        .weight_decay = read.weight_decay,
                        .lr_factor = read.lr_factor,
                        .frozen = read.frozen});
  }
  return settings;
}

// Makes a field of a base's member into a field of the derived struct.
template <typename Base, typename T>
Field<WithLayers<Base>> field(const char* name, T Base::*member, const char* about) {
  return {name, static_cast<T WithLayers<Base>::*>(member), about};
}

template <typename Base>
void add_optimizer(Targets& targets) {
  using O = WithLayers<Base>;
  std::vector<Field<O>> fields;
  optim::for_each_field<Base>([&](const auto& option) {
    fields.push_back(field(option.name, option.member, option.about));
  });
  fields.push_back({"no_bias_weight_decay", &O::no_bias_weight_decay,
                    "no weight decay for parameters whose name ends in bias"});
  fields.push_back(Field<O>("layers", &O::layers,
                            "lr or lr_factor, weight_decay and frozen by the parameters' names: "
                            "{\"0.*\": {lr: 0.1}}")
                       .named("mapping of patterns"));
  using Table = optim::OptionTable<Base>;
  targets.optimizers.add<O>(Table::kName, Table::kAbout, fields, [](const O& o) {
    std::vector<ParameterSettings> settings;
    if (o.no_bias_weight_decay)
      settings.push_back({.names = "*bias", .weight_decay = 0.0, .optional = true});
    for (auto& setting : read_layers(o.layers)) settings.push_back(std::move(setting));
    // Builds the optimizer once for a check: an invalid value is reported before workers start.
    torch::Tensor trial = torch::zeros({1}, torch::requires_grad());
    optim::FlatParameters parameters({{"trial", trial}});
    optim::OptimizerSpec(static_cast<const Base&>(o)).make(parameters);
    return optim::OptimizerSpec(static_cast<const Base&>(o), std::move(settings));
  });
}

void add_lookahead(Targets& targets) {
  using L = optim::Lookahead;
  targets.optimizers.add<L>(
      "Lookahead", "Another optimizer takes k steps; a part alpha of their way remains.",
      {config::required("optimizer", &L::optimizer, "any other"),
       {"k", &L::k, "its steps between two updates of the slow weights"},
       {"alpha", &L::alpha, "how far the slow weights move to the optimizer's"}},
      [](const L& options) {
        const Check check("optimizer Lookahead");
        check.count("k", options.k);
        check.fraction("alpha", options.alpha);
        return optim::OptimizerSpec(options);
      });
}

}  // namespace

void add_optimizers(Targets& targets) {
  add_optimizer<optim::Adam>(targets);
  add_optimizer<optim::AdamW>(targets);
  add_optimizer<optim::SGD>(targets);
  add_optimizer<optim::RMSprop>(targets);
  add_optimizer<optim::Adagrad>(targets);
  add_optimizer<optim::RAdam>(targets);
  add_optimizer<optim::NAdam>(targets);
  add_optimizer<optim::Adamax>(targets);
  add_optimizer<optim::Adadelta>(targets);
  add_optimizer<optim::Lion>(targets);
  add_optimizer<optim::Lamb>(targets);
  add_lookahead(targets);
}

}  // namespace lockstep::recipe

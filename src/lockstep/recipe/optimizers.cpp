#include "lockstep/optim/flat_parameters.h"
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
        node, {{"lr", &LayerSettings::lr, ""}, {"weight_decay", &LayerSettings::weight_decay, ""}});
    settings.push_back({.names = names, .lr = read.lr, .weight_decay = read.weight_decay});
  }
  return settings;
}

// Makes a field of a base's member into a field of the derived struct.
template <typename Base, typename T>
Field<WithLayers<Base>> field(const char* name, T Base::*member, const char* about) {
  return {name, static_cast<T WithLayers<Base>::*>(member), about};
}

template <typename Base>
void add(Targets& targets, const std::string& name, const std::string& about,
         std::vector<Field<WithLayers<Base>>> fields) {
  using O = WithLayers<Base>;
  fields.push_back({"no_bias_weight_decay", &O::no_bias_weight_decay,
                    "no weight decay for parameters whose name ends in bias"});
  fields.push_back(Field<O>("layers", &O::layers,
                            "lr and weight_decay by the parameters' names: {\"0.*\": {lr: 0.1}}")
                       .named("mapping of patterns"));
  targets.optimizers.add<O>(name, about, fields, [](const O& o) {
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

template <typename Base>
std::vector<Field<WithLayers<Base>>> adam_fields(const char* decay) {
  return {field("lr", &Base::lr, "learning rate"),
          field("beta1", &Base::beta1, "decay of the gradient's running mean"),
          field("beta2", &Base::beta2, "decay of the squared gradient's running mean"),
          field("eps", &Base::eps, "added to the denominator"),
          field("weight_decay", &Base::weight_decay, decay),
          field("amsgrad", &Base::amsgrad, "divides by the largest mean so far")};
}

}  // namespace

void add_optimizers(Targets& targets) {
  const char* const penalty = "an L2 penalty: added to the gradient";
  add<optim::Adam>(targets, "Adam", "Adaptive moments.", adam_fields<optim::Adam>(penalty));
  add<optim::AdamW>(targets, "AdamW", "Adam with weight decay separate from the gradient.",
                    adam_fields<optim::AdamW>("applied to the weights directly"));
  using S = optim::SGD;
  add<S>(targets, "SGD", "Gradient descent, with optional momentum.",
         {field("lr", &S::lr, "learning rate"), field("momentum", &S::momentum, "0: none"),
          field("dampening", &S::dampening, "reduces the gradient that is added to the momentum"),
          field("weight_decay", &S::weight_decay, penalty),
          field("nesterov", &S::nesterov, "needs momentum, and no dampening")});
  using R = optim::RMSprop;
  add<R>(
      targets, "RMSprop", "Divides by a running mean of the gradient's size.",
      {field("lr", &R::lr, "learning rate"),
       field("alpha", &R::alpha, "decay of the squared gradient's running mean"),
       field("eps", &R::eps, "added to the denominator"),
       field("weight_decay", &R::weight_decay, penalty), field("momentum", &R::momentum, "0: none"),
       field("centered", &R::centered, "divides by the variance instead of the mean square")});
  using G = optim::Adagrad;
  add<G>(targets, "Adagrad", "Divides by the size of all gradients so far.",
         {field("lr", &G::lr, "learning rate"),
          field("lr_decay", &G::lr_decay, "step t uses lr / (1 + (t - 1) lr_decay)"),
          field("weight_decay", &G::weight_decay, penalty),
          field("initial_accumulator_value", &G::initial_accumulator_value,
                "the sum of squares starts from it"),
          field("eps", &G::eps, "added to the denominator")});
}

}  // namespace lockstep::recipe

#include "lockstep/recipe/values.h"

#include "lockstep/config/fields.h"
#include "lockstep/recipe/dataset_tree.h"

namespace lockstep::config {

MetricKey Value<MetricKey>::read(const Node& node) {
  const std::string text = read_text(node);
  const std::size_t slash = text.find('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 == text.size()) {
    node.fail("expected loader/metric, such as valid/loss, got '{}'", text);
  }
  return {.loader = text.substr(0, slash), .metric = text.substr(slash + 1)};
}

HParam Value<HParam>::read(const Node& node) {
  if (!node.is_scalar()) node.fail("expected {}, got {}", type(), node.describe());
  if (!node.is_plain()) return node.text();
  if (const auto truth = parse_bool(node.text())) return *truth;
  if (const auto integer = parse_int(node.text())) return *integer;
  if (const auto number = parse_double(node.text())) return *number;
  return node.text();
}

std::string Value<HParam>::show(const HParam& value) {
  return std::visit(
      [](const auto& held) { return Value<std::decay_t<decltype(held)>>::show(held); }, value);
}

HParams Value<HParams>::read(const Node& node) {
  if (!node.is_map()) node.fail("expected a {}, got {}", type(), node.describe());
  HParams hparams;
  for (const auto& [key, value] : node.entries()) hparams.emplace(key, Value<HParam>::read(value));
  return hparams;
}

torch::Device Value<torch::Device>::read(const Node& node) {
  const std::string text = read_text(node);
  try {
    return torch::Device(text);
  } catch (const c10::Error&) {
    node.fail("expected a device, such as cpu or cuda:0, got '{}'", text);
  }
}

data::TransformPtr Value<data::TransformPtr>::read(const Node& node) {
  if (!node.is_list()) return recipe::targets().transforms.make(node);
  std::vector<data::TransformPtr> steps;
  for (const Node& step : node.items()) steps.push_back(read(step));
  return data::Compose(std::move(steps));
}

data::BatchTransform Value<data::BatchTransform>::read(const Node& node) {
  if (!node.is_list()) return recipe::targets().batch_transforms.make(node);
  data::BatchTransform all;
  for (const Node& step : node.items()) all = all.then(read(step));
  return all;
}

data::DatasetPtr Value<data::DatasetPtr>::read(const Node& node) {
  return recipe::make_dataset(node);
}

Criterion Value<Criterion>::read(const Node& node) {
  return recipe::targets().criterions.make(node);
}

LossTerm Value<LossTerm>::read(const Node& node) {
  using L = LossTerm;
  static const std::vector<Field<L>> fields = {
      {"criterion", &L::criterion, "its name; default: the run's only one"},
      {"output", &L::output, "key of the model's output; default: output_key"},
      {"target", &L::target, "key of the expected output; default: target_key"},
      {"weight", &L::weight, "the term is multiplied by it"},
      {"name", &L::name, "of its metric; default: the output"}};
  return read_fields(node, fields);
}

CallbackPtr Value<CallbackPtr>::read(const Node& node) {
  return recipe::targets().callbacks.make(node);
}

Wire Value<Wire>::read(const Node& node) {
  try {
    return Wire(read_text(node));
  } catch (const LocatedError&) {
    throw;
  } catch (const ConfigError& error) {
    const std::string_view text = error.what();
    constexpr std::string_view kOption = "wire: ";
    node.fail("{}", text.starts_with(kOption) ? text.substr(kOption.size()) : text);
  }
}

Precision Value<Precision>::read(const Node& node) {
  try {
    return Precision(read_text(node));
  } catch (const LocatedError&) {
    throw;
  } catch (const ConfigError& error) {
    const std::string_view text = error.what();
    constexpr std::string_view kOption = "precision: ";
    node.fail("{}", text.starts_with(kOption) ? text.substr(kOption.size()) : text);
  }
}

namespace {

// The order counts, so it is not read as a std::map.
std::vector<WeightRename> read_renames(const Node& node) {
  if (!node.is_map()) {
    node.fail("expected a mapping of names to new names, got {}", node.describe());
  }
  std::vector<WeightRename> renames;
  for (const auto& [from, to] : node.entries()) {
    renames.push_back({.from = from, .to = read_text(to)});
  }
  return renames;
}

struct WeightsFields {
  std::filesystem::path path;
  WeightsOptions options;
};

}  // namespace

Weights Value<Weights>::read(const Node& node) {
  if (node.is_null()) return {};
  if (node.is_scalar()) return read_text(node);
  using F = WeightsFields;
  using W = WeightsOptions;
  static const std::vector<Field<F>> fields = {
      required("path", &F::path, "of a checkpoint, a state_dict or safetensors"),
      Field<W>("strict", &W::strict, "").inside(&F::options),
      Field<W>("remove_prefix", &W::remove_prefix, "").inside(&F::options),
      Field<F>({.name = "rename",
                .type = "mapping of names to new names",
                .fallback = "{}",
                .about = ""},
               [](F& f, const Node& value) { f.options.rename = read_renames(value); }),
      Field<W>("add_prefix", &W::add_prefix, "").inside(&F::options),
      Field<W>("skip", &W::skip, "").inside(&F::options)};
  const F read = read_fields(node, fields);
  try {
    return Weights(read.path, read.options);
  } catch (const ConfigError& error) {
    const std::string_view text = error.what();
    constexpr std::string_view kOption = "weights: ";
    node.fail("{}", text.starts_with(kOption) ? text.substr(kOption.size()) : text);
  }
}

Named<Weights> Value<Named<Weights>>::read(const Node& node) {
  if (!node.is_map()) node.fail("expected a {}, got {}", type(), node.describe());
  Named<Weights> all;
  for (const auto& [network, file] : node.entries()) all.set(network, Value<Weights>::read(file));
  return all;
}

RestoreOptions Value<RestoreOptions>::read(const Node& node) {
  using R = RestoreOptions;
  static const std::vector<Field<R>> fields = {
      {"optimizer", &R::optimizer, "a checkpoint with the state of the optimizer"},
      {"scheduler", &R::scheduler, "a checkpoint with the place in the schedule"},
      {"criterion", &R::criterion, "a checkpoint with the weights of the loss"}};
  return read_fields(node, fields);
}

optim::GradScalerOptions Value<optim::GradScalerOptions>::read(const Node& node) {
  using G = optim::GradScalerOptions;
  static const std::vector<Field<G>> fields = {
      {"init_scale", &G::init_scale, "the first factor of the loss"},
      {"growth_factor", &G::growth_factor, "of the scale, after growth_interval updates"},
      {"backoff_factor", &G::backoff_factor, "of the scale, after a skipped update"},
      {"growth_interval", &G::growth_interval, "updates in a row with finite gradients"},
      {"enabled", &G::enabled, "false: the loss is not scaled"}};
  return read_fields(node, fields);
}

Phase Value<Phase>::read(const Node& node) {
  if (node.is_scalar()) return {.name = read_text(node)};
  using P = Phase;
  static const std::vector<Field<P>> fields = {
      required("name", &P::name, "state.phase in handle_batch"),
      {"optimizers", &P::optimizers, "that it steps; default: the one of its name"},
      {"every", &P::every, "takes place in every n-th train batch only"}};
  return read_fields(node, fields);
}

optim::OptimizerSpec Value<optim::OptimizerSpec>::read(const Node& node) {
  return recipe::targets().optimizers.make(node);
}

optim::SchedulerSpec Value<optim::SchedulerSpec>::read(const Node& node) {
  return recipe::targets().schedulers.make(node);
}

}  // namespace lockstep::config

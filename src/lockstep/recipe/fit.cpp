#include "lockstep/recipe/fit.h"

#include <charconv>
#include <vector>

#include "lockstep/config/registry.h"
#include "lockstep/train/dry_run.h"
#include "lockstep/train/plan.h"
#include "lockstep/train/random.h"

namespace lockstep::recipe {
namespace {

using config::Node;

// Calls `work`. An exception becomes an error at `place`.
template <typename F>
auto located(const Node& place, const F& work) -> decltype(work()) {
  try {
    return work();
  } catch (const config::LocatedError&) {
    throw;
  } catch (const std::exception& error) {
    config::fail_making(place, place, error.what());
  }
}

// The node of a key; if there is none, the node that it would be in.
const Node& place_in(const Node& node, std::string_view key) {
  const Node* const found = node.find(key);
  return found == nullptr ? node : *found;
}

std::size_t index_in(std::string_view text) {
  std::size_t index = 0;
  std::from_chars(text.data(), text.data() + text.size(), index);
  return index;
}

// The node of the callback with this index. A callback that an option added has none.
const Node& place_of_callback(const Node& stage, std::size_t index) {
  const Node& section = place_in(stage, "callbacks");
  std::vector<const Node*> places;
  for (const Node& item : section.items()) places.push_back(&item);
  for (const auto& [name, item] : section.entries()) {
    if (!item.is_null()) places.push_back(&item);
  }
  return &section != &stage && index < places.size() ? *places[index] : stage;
}

// The node of an item of the runner's losses. `runner: {SupervisedRunner: {losses: …}}` is a short
// form of `runner: {_target_: SupervisedRunner, losses: …}`.
const Node& place_of_loss(const Node& stage, std::size_t index) {
  const Node* runner = &place_in(stage, "runner");
  if (!runner->contains("losses") && runner->entries().size() == 1) {
    runner = &runner->entries().front().second;
  }
  const Node& losses = place_in(*runner, "losses");
  return index < losses.items().size() ? losses.items()[index] : losses;
}

// The node of a part of a plan: "engine", "loaders/valid", "callbacks/0", "runner/losses/1".
const Node& place_of(const Node& stage, std::string_view part) {
  const std::size_t slash = part.find('/');
  const std::string_view first = part.substr(0, slash);
  if (slash == std::string_view::npos) return place_in(stage, first);
  const std::string_view second = part.substr(slash + 1);
  if (first == "callbacks") return place_of_callback(stage, index_in(second));
  constexpr std::string_view kLosses = "losses/";
  if (first == "runner" && second.starts_with(kLosses)) {
    return place_of_loss(stage, index_in(second.substr(kLosses.size())));
  }
  return place_in(place_in(stage, first), second);
}

}  // namespace

Batch some_samples(const data::Loader& loader, std::int64_t count, const Node& place) {
  return located(place, [&] { return first_samples(loader, count); });
}

const torch::Tensor& tensor_of(const Batch& batch, const std::string& key, const Node& place) {
  return located(place, [&]() -> const torch::Tensor& { return lockstep::tensor_of(batch, key); });
}

EnginePtr check_stage(const StageToCheck& stage) {
  constexpr std::int64_t kSamples = 2;
  constexpr std::int64_t kTargets = 1000;
  const RandomStateScope random;  // plan() sets the seed
  return located(stage.node, [&] {
    try {
      const Plan plan = stage.runner.plan(stage.options);
      dry_run(plan, {.samples = stage.options.dry_run ? kSamples : 0,
                     .targets = kTargets,
                     .optimizer = true,
                     .files = true});
      return plan.engine;
    } catch (const PlanError& error) {
      const Node& place = place_of(stage.node, error.part());
      config::fail_making(place, place, error.reason());
    }
  });
}

}  // namespace lockstep::recipe

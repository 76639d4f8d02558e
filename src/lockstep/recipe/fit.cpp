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

// The node of the callback with this index. A callback that an option added has none.
const Node& place_of_callback(const Node& stage, std::string_view index) {
  const Node& section = place_in(stage, "callbacks");
  std::vector<const Node*> places;
  for (const Node& item : section.items()) places.push_back(&item);
  for (const auto& [name, item] : section.entries()) {
    if (!item.is_null()) places.push_back(&item);
  }
  std::size_t at = places.size();
  std::from_chars(index.data(), index.data() + index.size(), at);
  return &section != &stage && at < places.size() ? *places[at] : stage;
}

// The node of a part of a plan: "engine", "loaders/valid", "callbacks/0".
const Node& place_of(const Node& stage, std::string_view part) {
  const std::size_t slash = part.find('/');
  const std::string_view first = part.substr(0, slash);
  if (slash == std::string_view::npos) return place_in(stage, first);
  const std::string_view second = part.substr(slash + 1);
  if (first == "callbacks") return place_of_callback(stage, second);
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

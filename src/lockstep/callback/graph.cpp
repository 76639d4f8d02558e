#include "lockstep/callback/graph.h"

#include <filesystem>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/warn.h"
#include "lockstep/exporting/graph_nodes.h"

namespace lockstep {
namespace {

const Model& traced_network(const State& state, const GraphCallbackOptions& options) {
  if (options.network) return state.models.at(*options.network);
  if (state.models.size() > 1) {
    throw ConfigError("GraphCallback: the run has several networks; set `network` to one of them");
  }
  return state.model;
}

}  // namespace

GraphCallback::GraphCallback(GraphCallbackOptions options) : options_(std::move(options)) {
  if (options_.input_keys.empty()) {
    throw ConfigError("GraphCallback: input_keys: expected at least one key, got none");
  }
}

CallbackTraits GraphCallback::traits() const {
  return {.ranks = Ranks::kPrimary,
          .uses_gradients = false,
          .needs_training = true,
          .changes_batch = false,
          .metric_names = no_metrics()};
}

void GraphCallback::check(const State& state) const {
  if (!state.logdir) throw ConfigError("GraphCallback: it writes to logdir; set logdir of the run");
  traced_network(state, options_);
}

void GraphCallback::on_batch_start(State& state) {
  if (is_done_) return;
  is_done_ = true;
  const std::filesystem::path folder = *state.logdir / "tensorboard" / "_graph_";
  // After a failure the run repeats its first batch.
  if (state.restarts > 0 && std::filesystem::is_directory(folder)) return;
  const Model& model = traced_network(state, options_);
  Batch inputs;
  for (const std::string& key : options_.input_keys) inputs.set(key, state.batch[key]);
  try {
    exporting::write_graph(model, inputs, folder);
  } catch (const ConfigError& error) {
    warn(fmt::format("GraphCallback: there will be no graph: {}", error.what()));
  }
}

StateDict GraphCallback::state() const {
  StateDict state;
  if (is_done_) state.set("is_done", true);
  return state;
}

void GraphCallback::load_state(const StateDict& state) {
  is_done_ = state.get_or<bool>("is_done", false);
}

}  // namespace lockstep

#include "lockstep/dist/distributed_model.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/dist/dist.h"
#include "lockstep/dist/gradient_message.h"
#include "lockstep/dist/gradient_reducer.h"
#include "lockstep/dist/group.h"
#include "lockstep/engine/model_buffers.h"

namespace lockstep::dist {

namespace {

// Collective. Ranks that round differently would send messages of different lengths, and Gloo ends
// a process that gets one.
void check_same_wire(Wire wire) {
  const auto votes = group().vote(wire.type());
  for (std::size_t rank = 0; rank < votes.size(); ++rank) {
    if (votes[rank] == votes.front()) continue;
    const auto name = [](std::uint64_t vote) { return Wire(static_cast<Wire::Type>(vote)).name(); };
    throw ConfigError(
        "DistributedModel: wire: expected the same on all ranks, got {} on rank 0 and {} on rank "
        "{}; pass the same options on every rank",
        name(votes.front()), name(votes[rank]), rank);
  }
}

}  // namespace

struct DistributedModel::SharedState {
  SharedState(Model given, const DistributedModelOptions& options)
      : model(std::move(given)),
        reducer(std::make_shared<GradientReducer>(
            model.parameters(),
            GradientReducer::Options{.bucket_bytes = options.bucket_bytes, .wire = options.wire})) {
    check_same_wire(options.wire);
    sync_params(model);
    if (options.broadcast_buffers) {
      buffers.emplace(model.buffers(), group(), ModelBuffersOptions{.shards = group().size()});
    }
    reducer->attach();
  }

  // Collective if an averaged backward() has taken place since the last call.
  void send_buffers() {
    if (!buffers || !reducer->has_group() || !model.is_training()) return;
    if (std::exchange(sent_after, reducer->passes()) != reducer->passes()) buffers->broadcast();
  }

  Model model;
  std::shared_ptr<GradientReducer> reducer;  // hooks of the parameters point to it, too
  std::optional<ModelBuffers> buffers;
  std::uint64_t sent_after = 0;  // averaged passes, when the buffers were sent last
};

DistributedModel::DistributedModel(Model model, const DistributedModelOptions& options) {
  if (!model) throw ConfigError("prepare_ddp_model: expected a model, got none");
  shared_ = std::make_shared<SharedState>(std::move(model), options);
}

const Model& DistributedModel::model() const {
  return shared_->model;
}

void DistributedModel::before_forward() const {
  shared_->reducer->attach();
  shared_->send_buffers();
}

void DistributedModel::weight(double weight) const {
  shared_->reducer->set_weight(weight);
}

void DistributedModel::no_batch() const {
  before_forward();
  shared_->reducer->pass_without_backward();
}

// Buffers are sent by all forward passes before the messages of backward().
void no_batch(std::vector<DistributedModel> models) {
  for (const DistributedModel& model : models) model.before_forward();
  std::ranges::sort(models, [](const DistributedModel& a, const DistributedModel& b) {
    return a.shared_->reducer->ends_before(*b.shared_->reducer);
  });
  for (const DistributedModel& model : models) model.shared_->reducer->pass_without_backward();
}

DistributedModel::NoSync DistributedModel::no_sync() const {
  return NoSync(shared_);
}

DistributedModel::NoSync::NoSync(std::shared_ptr<SharedState> shared) : shared_(std::move(shared)) {
  shared_->reducer->suspend();
}

DistributedModel::NoSync::~NoSync() {
  shared_->reducer->resume();
}

void average_gradients(const std::vector<torch::Tensor>& parameters, double weight) {
  if (!std::isfinite(weight) || weight < 0) {
    throw ConfigError("average_gradients: weight: expected 0 or more, got {}", weight);
  }
  if (std::ranges::any_of(parameters, GradientReducer::has)) {
    throw ConfigError(
        "average_gradients: these are parameters of a DistributedModel, and its backward() has "
        "averaged them already; remove this call, and pass a weight to weight() before backward()");
  }
  if (get_world_size() == 1) {
    barrier();  // throws if this process is one of several and has no group
    return;
  }
  for (const auto type : {torch::kFloat32, torch::kFloat64}) {
    std::vector<torch::Tensor> alike;
    for (const auto& parameter : parameters) {
      if (parameter.requires_grad() && GradientMessage::type_of(parameter) == type) {
        alike.push_back(parameter);
      }
    }
    if (alike.empty()) continue;
    GradientMessage message(alike);
    for (std::size_t i = 0; i < alike.size(); ++i) message.write_gradient(i, {.weight = weight});
    message.write_head({.weight = weight});
    all_reduce(message.array());
    message.read_means();
  }
}

}  // namespace lockstep::dist

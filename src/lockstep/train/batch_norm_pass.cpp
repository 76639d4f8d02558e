#include "lockstep/train/batch_norm_pass.h"

#include <utility>

#include <torch/utils.h>

#include "lockstep/compute/autocast.h"
#include "lockstep/engine/batch_norm_statistics.h"
#include "lockstep/train/random.h"

namespace lockstep {
namespace {

// Brings back what the pass changes in the state.
class PassScope {
 public:
  explicit PassScope(State& state)
      : state_(state),
        pass_(state),
        shard_(state.take_shard()),
        outputs_ready_(std::exchange(state.outputs_ready, [] {})) {}
  ~PassScope() {
    state_.set_pass(std::move(pass_));
    state_.set_shard(std::move(shard_));
    state_.outputs_ready = std::move(outputs_ready_);
  }
  PassScope(const PassScope&) = delete;
  PassScope& operator=(const PassScope&) = delete;

 private:
  State& state_;
  PassState pass_;
  ShardState shard_;
  std::function<void()> outputs_ready_;
};

void seed(const State& state, const BatchNormPass::Source& source, Draws draws, std::size_t phase) {
  seed_draws({.seed = state.seed,
              .epoch = state.progress.epoch,
              .loader = source.index,
              .batch = state.loader_batch - 1,
              .shard = state.shard,
              .draws = draws,
              .phase = static_cast<std::int64_t>(phase)});
}

void read_shard(const BatchNormPass& pass, const BatchNormPass::Source& source,
                data::BatchWindow::Stream& stream) {
  State& state = pass.state;
  seed(state, source, Draws::kData, 0);
  state.batch = *stream.next();
  if (!state.engine->device().is_cpu()) state.batch = state.batch.to(state.engine->device());
  seed(state, source, Draws::kModel, 0);
  for (const auto& callback : pass.callbacks) {
    if (callback->traits().changes_batch) callback->on_batch_start(state);
  }
  if (state.batch.begin() == state.batch.end()) state.listed_samples = state.batch.size();
}

void forward(const BatchNormPass& pass, const BatchNormPass::Source& source,
             BatchNormStatistics& statistics, int local) {
  State& state = pass.state;
  for (std::size_t phase = 0; phase < pass.phases.size(); ++phase) {
    if (phase > 0) seed(state, source, Draws::kModel, phase);
    state.phase = pass.phases[phase].name;
    state.engine->forward([&] {
      const AutocastScope autocast(state.precision, state.engine->device());
      const BatchNormStatistics::Scope scope(statistics, local);
      pass.handle_batch(state);
    });
    state.batch.erase(state.loss_key);
  }
}

void run_over(const BatchNormPass& pass, const BatchNormPass::Source& source,
              BatchNormStatistics& statistics) {
  State& state = pass.state;
  const data::Loader loader = state.loaders.at(source.name);
  data::WindowOptions window = source.window;
  window.key = {.seed = state.seed, .epoch = state.progress.epoch};
  const data::BatchWindow epoch(loader, window, pass.shards);
  const comm::LeafRange own = comm::leaves_of(
      {.rank = state.comm->rank(), .size = state.comm->size()}, static_cast<int>(pass.shards));
  auto stream = epoch.stream({.first_shard = own.begin, .count = own.count()});
  state.set_pass({.loader = source.name,
                  .loader_batches = epoch.batches(),
                  .loader_sample_count = epoch.samples_before(epoch.batches()),
                  .loader_batch_size = data::batch_split(loader, pass.shards).largest()});
  for (std::int64_t index = 0; index < epoch.batches(); ++index) {
    state.loader_batch = index + 1;
    state.loader_samples += epoch.samples(index);
    state.comm->set_progress(state.progress.epoch, state.loader_batch);
    for (int local = 0; local < own.count(); ++local) {
      if (epoch.slice(index, own.begin + local).count == 0) continue;
      state.set_shard({.shard = own.begin + local});
      read_shard(pass, source, stream);
      forward(pass, source, statistics, local);
    }
  }
}

// Gives the modules the modes that they had in training. Returns whether some that could be trained
// are in evaluation mode, for example those that FreezeCallback freezes in this epoch.
bool set_modes(const BatchNormPass& pass) {
  const Model& model = pass.state.model;
  model.train(true);
  for (const Model& network : pass.untrained) network.train(false);
  if (pass.modes.empty()) return false;
  const Model::Modes all_trained = model.modes();
  model.set_modes(pass.modes);
  return model.modes() != all_trained;
}

}  // namespace

bool remake_batch_norm(const BatchNormPass& pass) {
  State& state = pass.state;
  const torch::NoGradGuard no_grad;
  const NamedTensors all = state.model.buffers();
  std::vector<torch::Tensor> before;
  for (const auto& [name, buffer] : all) before.push_back(buffer.clone());
  BatchNormStatistics statistics(pass.buffers, *state.comm, static_cast<int>(pass.shards));
  bool has_evaluated = false;
  {
    const PassScope scope(state);
    has_evaluated = set_modes(pass);
    for (const auto& source : pass.loaders) run_over(pass, source, statistics);
  }
  for (std::size_t i = 0; i < all.size(); ++i) all[i].second.copy_(before[i]);
  const bool has_batch_norm = statistics.write();
  // All ranks must return the same.
  return state.comm->vote((has_batch_norm || has_evaluated) ? 1 : 0).front() == 1;
}

}  // namespace lockstep

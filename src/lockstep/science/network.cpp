#include "lockstep/science/network.h"

#include <utility>

#include <fmt/ranges.h>
#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/option_text.h"
#include "lockstep/base/text.h"
#include "lockstep/callback/early_stopping.h"
#include "lockstep/callback/scheduler.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/data/describe.h"
#include "lockstep/engine/devices.h"
#include "lockstep/engine/distributed.h"
#include "lockstep/log/console.h"
#include "lockstep/process/environment.h"
#include "lockstep/runner/supervised.h"
#include "lockstep/science/model_scaling.h"
#include "lockstep/science/parameters.h"

namespace lockstep::science {
namespace {

namespace fs = std::filesystem;

// Copies the optimizer's state out of the run, because the optimizer ends with the run. Also
// restores the state of a loaded model, and calls `on_epoch`.
class Follower : public Callback {
 public:
  Follower(StateDict& optimizer, bool is_loaded, const Estimator::OnEpoch& on_epoch)
      : optimizer_(optimizer), is_loaded_(is_loaded), on_epoch_(on_epoch) {}

  std::string name() const override { return "Follower"; }
  CallbackTraits traits() const override {
    return {.order = Order::kExternalExtra,
            .uses_gradients = false,
            .changes_batch = false,
            .metric_names = no_metrics()};
  }
  std::string agreed_options() const override {
    return OptionText().with("is_loaded", is_loaded_).str();
  }
  void on_run_start(State& state) override {
    // A run that goes on after a fault has the state of its point.
    if (!is_loaded_ || state.progress.batch_step > 0) return;
    const double lr = state.optimizer->lr();
    state.optimizer->load_state(optimizer_);
    state.optimizer->set_lr(lr);  // the configured one, not that of the loaded state
  }
  void on_epoch_end(State& state) override {
    // A run that goes on after a fault may repeat the end of an epoch.
    if (!on_epoch_ || !state.comm->is_primary() || state.progress.epoch <= reported_) return;
    on_epoch_(state.progress.epoch, state.epoch_metrics);
    reported_ = state.progress.epoch;
  }
  void on_run_end(State& state) override {
    if (state.comm->is_primary()) optimizer_ = state.optimizer->state();
  }

 private:
  StateDict& optimizer_;
  bool is_loaded_;
  const Estimator::OnEpoch& on_epoch_;
  std::int64_t reported_ = 0;  // the last epoch that on_epoch_ got
};

// Compares outputs and targets as rows, because the model's outputs are rows.
Criterion by_rows(const Criterion& criterion) {
  return [criterion](const torch::Tensor& outputs, const torch::Tensor& targets) {
    return criterion(outputs.flatten(1), targets.flatten(1));
  };
}

std::shared_ptr<Engine> engine_of(const NetworkConfig& config) {
  if (!config.ddp)
    return std::make_shared<DeviceEngine>(DeviceEngineOptions{.device = config.device});
  return std::make_shared<DistributedDataParallelEngine>(DistributedDataParallelOptions{
      .workers = config.workers, .shards = config.shards, .device = config.device});
}

// Printed once, also if a launcher started several processes.
void announce(const std::string& name, const Engine& engine) {
  if (!process::is_primary_process()) return;
  Console::standard().line(fmt::format("{}: trains on {} with {} worker{}", name,
                                       engine.device().str(), engine.workers(),
                                       engine.workers() == 1 ? "" : "s"));
}

}  // namespace

Network::Network(NetworkConfig config) : config_(std::move(config)) {
  if (config_.n_epochs < 1) {
    throw ConfigError("n_epochs: expected a positive integer, got {}", config_.n_epochs);
  }
  if (!config_.ddp && (config_.workers || config_.shards)) {
    throw ConfigError("workers and shards need ddp = true, got ddp = false");
  }
  if (!config_.ddp && config_.max_restarts != 0) {
    throw ConfigError("max_restarts: {} needs ddp = true, got ddp = false", config_.max_restarts);
  }
}

void Network::fit(const data::Loaders& loaders, const OnEpoch& on_epoch) {
  const auto& [first, loader] = *loaders.begin();
  const FieldShape shape = shape_of(loader);
  manual_seed(config_.seed);
  if (!is_loaded_) {
    model_ = make_model(shape);
  } else if (shape != *shape_) {
    throw DataError("{}: was loaded for samples of {}, got samples of {}", name(),
                    science::describe(*shape_), science::describe(shape));
  }
  const data::Scaling scaling = data::scaling_of(*loader.dataset());
  if (is_loaded_) check_scaling({.name = name(), .scaling = scaling_}, loader);
  for (const auto& [other_name, other] : loaders) {
    check_scaling({.name = fmt::format("{}: loader '{}'", name(), other_name), .scaling = scaling},
                  other);
  }
  shape_ = shape;
  scaling_ = scaling;
  const bool has_rows = loader.dataset()->sample(0)["targets"].dim() == 1;
  const auto engine = engine_of(config_);
  announce(name(), *engine);
  const MetricKey watched{.loader = first, .metric = "loss"};
  SupervisedRunner runner;
  const TrainResult result = runner.train({
      .model = model_,
      .criterion = has_rows ? criterion() : by_rows(criterion()),
      .optimizer = optim::Adam{.lr = config_.lr, .weight_decay = config_.weight_decay},
      .scheduler = optim::ReduceLROnPlateau{.min_lr = config_.min_lr.value_or(config_.lr / 100)},
      .loaders = loaders,
      .seed = config_.seed,
      .hparams = parameters(),
      .num_epochs = config_.n_epochs,
      .logdir = config_.logdir,
      .valid_loader = loaders.size() > 1 ? std::next(loaders.begin())->first : first,
      .valid_metric = "loss",
      .verbose = config_.verbose,
      .terminate_on_nan = true,
      .precision = config_.precision,
      .callbacks = {EarlyStoppingCallback({.patience = config_.patience,
                                           .metric = watched,
                                           .minimize = true,
                                           .min_delta = config_.min_delta}),
                    SchedulerCallback({.metric = watched}),
                    Follower(optimizer_, is_loaded_, on_epoch)},
      .max_restarts = config_.max_restarts,
      .engine = engine,
  });
  is_loaded_ = false;
  history_ = result.history;
  weights_hash_ = result.weights_hash;
  samples_per_second_ = result.train_samples_per_second;
  epoch_ = history_.empty() ? 0 : history_.rbegin()->first;
  loss_ = history_.empty() ? 0 : history_.rbegin()->second.at(first).at("loss");
}

torch::Tensor Network::predict(const data::Loader& loader) {
  require_model("predict");
  check_scaling({.name = name(), .scaling = scaling_}, loader);
  SupervisedRunner runner;
  std::vector<torch::Tensor> rows;
  for (const Batch& batch :
       runner.predict_loader({.loader = loader,
       .model = model_,
       .engine = std::make_shared<DeviceEngine>(DeviceEngineOptions{.device = config_.device}),
       .precision = config_.precision})) {
    rows.push_back(batch["logits"].cpu().flatten(1));
  }
  return scaling_.targets.undo(torch::cat(rows));
}

void Network::require_model(const char* what) const {
  if (!model_) throw Error("{}: {} needs a model: train() or load() first", name(), what);
}

HParams Network::parameters() const {
  HParams hparams = options();
  const auto engine = engine_of(config_);
  hparams.insert({{"n_epochs", config_.n_epochs},
                  {"patience", config_.patience},
                  {"min_delta", config_.min_delta},
                  {"lr", config_.lr},
                  {"min_lr", config_.min_lr.value_or(config_.lr / 100)},
                  {"weight_decay", config_.weight_decay},
                  {"ddp", config_.ddp},
                  {"workers", engine->workers()},
                  {"shards", engine->shards()},
                  {"device", engine->device().str()},
                  {"logdir", config_.logdir ? config_.logdir->string() : "none"},
                  {"seed", static_cast<std::int64_t>(config_.seed)}});
  if (!scaling_.is_none()) hparams["scaling"] = data::describe(scaling_);
  return hparams;
}

std::string Network::describe() const {
  if (!model_) return "";
  std::string text = fmt::format("{} for {}\n", name(), science::describe(*shape_));
  std::int64_t total = 0;
  for (const auto& [name, weight] : model_.weights()) {
    text += fmt::format("  {}: {}\n", name, data::describe(weight));
    total += weight.numel();
  }
  return text + fmt::format("{} weights\n", with_thousands(total));
}

void Network::save(const fs::path& folder) const {
  require_model("save");
  if (!process::is_primary_process()) return;
  make_directories(folder);
  checkpoint::save(folder / "model.pt", StateDict{{"epoch", epoch_},
                                                  {"model_state_dict", model_.state()},
                                                  {"optimizer_state_dict", optimizer_},
                                                  {"loss", loss_}});
  save_parameters(
      folder,
      {.estimator = name(), .parameters = parameters(), .shape = shape_, .scaling = scaling_});
}

void Network::load(const fs::path& folder) {
  const SavedParameters saved = load_parameters(folder, name());
  if (!saved.shape) {
    throw CheckpointError("{}: params.json has no \"shape\" of the samples", folder.string());
  }
  const StateDict state = checkpoint::load(folder / "model.pt");
  try {
    restore(saved.parameters);
  } catch (const std::exception& error) {
    throw CheckpointError("{}: params.json: an option of {} is missing or has another type: {}",
                          folder.string(), name(), error.what());
  }
  Model model = make_model(*saved.shape);
  model.load_state(state.get<StateDict>("model_state_dict"));
  model_ = model;
  shape_ = saved.shape;
  scaling_ = saved.scaling;
  optimizer_ = state.get<StateDict>("optimizer_state_dict");
  epoch_ = state.get<std::int64_t>("epoch");
  loss_ = state.get<double>("loss");
  is_loaded_ = true;
}

}  // namespace lockstep::science

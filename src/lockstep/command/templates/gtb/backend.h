// The training backend, as source to customise: how an estimator is trained, saved and loaded, and
// how it predicts. It is lockstep::science::Network without its checks. It cannot continue the
// training of a loaded model.
#pragma once

#include <lockstep/process/environment.h>
#include <lockstep/lockstep.h>
#include <lockstep/science/cubes.h>
#include <lockstep/science/estimator.h>
#include <lockstep/science/parameters.h>

namespace @NAMESPACE@ {

namespace science = lockstep::science;

struct BackendConfig {
  std::int64_t n_epochs = 100;
  std::int64_t patience = 20;  // epochs without a better training loss
  double min_delta = 1e-5;     // the smallest change that counts as better
  std::filesystem::path logdir = "logs";
  double lr = 2e-3;
  std::optional<int> workers = {};  // default: one per core, or one per GPU
  std::optional<int> shards = {};   // parts of a batch; default: one per worker
  int max_restarts = 0;             // how many times workers are made anew after one was lost
  std::optional<torch::Device> device = {};  // default: a GPU, else the CPU
  std::uint64_t seed = 42;
};

class Backend : public science::Estimator {
 public:
  explicit Backend(BackendConfig config) : config_(std::move(config)) {}

  torch::Tensor predict(const lockstep::data::Loader& loader) override {
    require_model();
    lockstep::SupervisedRunner runner;
    std::vector<torch::Tensor> rows;
    for (const auto& batch : runner.predict_loader(
             {.loader = loader,
              .model = model_,
              .engine = std::make_shared<lockstep::DeviceEngine>(
                  lockstep::DeviceEngineOptions{.device = config_.device})})) {
      rows.push_back(batch["logits"].cpu().flatten(1));
    }
    return torch::cat(rows);
  }

  void save(const std::filesystem::path& folder) const override {
    require_model();
    if (!lockstep::process::is_primary_process()) return;
    std::filesystem::create_directories(folder);
    lockstep::checkpoint::save(folder / "model.pt",
                               lockstep::StateDict{{"model_state_dict", model_.state()}});
    science::save_parameters(folder, {.estimator = name(), .parameters = parameters(), .shape = shape_});
  }

  void load(const std::filesystem::path& folder) override {
    const auto saved = science::load_parameters(folder, name());
    shape_ = saved.shape.value();
    model_ = make_model(*shape_);
    model_.load_state(
        lockstep::checkpoint::load(folder / "model.pt").get<lockstep::StateDict>("model_state_dict"));
  }

  lockstep::HParams parameters() const override {
    return {{"n_epochs", config_.n_epochs},
            {"patience", config_.patience},
            {"min_delta", config_.min_delta},
            {"lr", config_.lr},
            {"seed", static_cast<std::int64_t>(config_.seed)}};
  }

  const std::map<std::int64_t, lockstep::EpochMetrics>& history() const override { return history_; }

  // The best epoch, whose weights the model has after train(), and its validation loss.
  std::int64_t best_epoch() const { return best_epoch_; }
  double best_loss() const { return best_loss_; }

 protected:
  void fit(const lockstep::data::Loaders& loaders, const OnEpoch& on_epoch) override {
    const auto& [first, loader] = *loaders.begin();
    shape_ = science::shape_of(loader);
    lockstep::manual_seed(config_.seed);
    model_ = make_model(*shape_);
    const lockstep::MetricKey watched{.loader = first, .metric = "loss"};
    lockstep::SupervisedRunner runner;
    const auto result = runner.train(lockstep::TrainOptions{
        .model = model_,
        .criterion = criterion(),
        .optimizer = lockstep::optim::Adam{.lr = config_.lr},
        .scheduler = lockstep::optim::ReduceLROnPlateau{.min_lr = config_.lr / 100},
        .loaders = loaders,
        .seed = config_.seed,
        .hparams = parameters(),
        .num_epochs = config_.n_epochs,
        .logdir = config_.logdir,
        .valid_loader = loaders.size() > 1 ? std::next(loaders.begin())->first : first,
        .valid_metric = "loss",
        .load_best_on_end = true,  // the best epoch is saved and evaluated
        .callbacks = {lockstep::EarlyStoppingCallback({.patience = config_.patience,
                                                       .metric = watched,
                                                       .minimize = true,
                                                       .min_delta = config_.min_delta}),
                      lockstep::SchedulerCallback({.metric = watched})},
        .max_restarts = config_.max_restarts,
        .engine = std::make_shared<lockstep::DistributedDataParallelEngine>(
            lockstep::DistributedDataParallelOptions{
                .workers = config_.workers, .shards = config_.shards, .device = config_.device}),
    });
    history_ = result.history;
    best_epoch_ = result.best_epoch;
    best_loss_ = result.best_metric;
    if (on_epoch) {
      for (const auto& [epoch, metrics] : history_) on_epoch(epoch, metrics);
    }
  }

  virtual lockstep::Model make_model(const science::FieldShape& shape) const = 0;
  virtual lockstep::Criterion criterion() const = 0;

 private:
  void require_model() const {
    if (!model_) throw lockstep::Error("{}: call train() or load() first", name());
  }

  BackendConfig config_;
  std::optional<science::FieldShape> shape_;
  lockstep::Model model_;
  std::map<std::int64_t, lockstep::EpochMetrics> history_;
  std::int64_t best_epoch_ = 0;
  double best_loss_ = 0;
};

}  // namespace @NAMESPACE@

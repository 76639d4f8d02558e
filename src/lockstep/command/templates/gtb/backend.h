// The training backend: how an estimator is trained, asked, saved and loaded, as source to customise.
// It does what lockstep::science::Network does; what is yours goes here.
#pragma once

#include <lockstep/lockstep.h>
#include <lockstep/science/cubes.h>
#include <lockstep/science/estimator.h>
#include <lockstep/science/parameters.h>

namespace @NAMESPACE@ {

namespace science = lockstep::science;

struct BackendConfig {
  std::int64_t n_epochs = 100;
  std::int64_t patience = 20;  // epochs without a better training loss
  double min_delta = 1e-5;     // that counts as better
  std::filesystem::path logdir = "logs";
  double lr = 2e-3;
  std::optional<int> workers = {};  // default: one a core, or a GPU each
  std::optional<int> shards = {};   // parts of a batch; default: one a worker
  std::uint64_t seed = 42;
};

class Backend : public science::Estimator {
 public:
  explicit Backend(BackendConfig config) : config_(std::move(config)) {}

  void train(const lockstep::data::Loaders& loaders) override {
    const auto& [first, loader] = *loaders.begin();
    shape_ = science::shape_of(loader);
    torch::manual_seed(config_.seed);
    model_ = make_model(*shape_);
    const lockstep::MetricKey watched{.loader = first, .metric = "loss"};
    lockstep::SupervisedRunner runner;
    const auto result = runner.train({
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
        .callbacks = {lockstep::EarlyStoppingCallback({.patience = config_.patience,
                                                       .metric = watched,
                                                       .minimize = true,
                                                       .min_delta = config_.min_delta}),
                      lockstep::SchedulerCallback({.metric = watched})},
        .ddp = true,
        .workers = config_.workers,
        .shards = config_.shards,
    });
    history_ = result.history;
  }

  torch::Tensor predict(const lockstep::data::Loader& loader) override {
    lockstep::SupervisedRunner runner;
    std::vector<torch::Tensor> rows;
    for (const auto& batch : runner.predict_loader({.loader = loader, .model = model_})) {
      rows.push_back(batch["logits"].cpu().flatten(1));
    }
    return torch::cat(rows);
  }

  void save(const std::filesystem::path& folder) const override {
    std::filesystem::create_directories(folder);
    lockstep::checkpoint::save(folder / "model.pt",
                               lockstep::StateDict{{"model_state_dict", model_.state()}});
    science::save_parameters(folder, {.estimator = name(), .parameters = parameters(), .shape = shape_});
  }

  void load(const std::filesystem::path& folder) override {
    const auto saved = science::load_parameters(folder, name());
    shape_ = saved.shape;
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

 protected:
  virtual lockstep::Model make_model(const science::FieldShape& shape) const = 0;
  virtual lockstep::Criterion criterion() const = 0;

 private:
  BackendConfig config_;
  std::optional<science::FieldShape> shape_;
  lockstep::Model model_;
  std::map<std::int64_t, lockstep::EpochMetrics> history_;
};

}  // namespace @NAMESPACE@

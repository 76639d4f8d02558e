// A small problem that trains in milliseconds, for tests of the runner and its callbacks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/base/warn.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/engine/devices.h"
#include "lockstep/runner/supervised.h"

namespace lockstep::toy {

// Points in four dimensions. The class is the index of the largest of the first three coordinates.
inline data::DatasetPtr points(std::int64_t count, std::uint64_t seed = 1) {
  manual_seed(seed);
  const auto features = torch::randn({count, 4});
  const auto targets = features.narrow(1, 0, 3).argmax(1);
  return std::make_shared<data::TensorDataset>(features, targets);
}

// The model has dropout and batch norm, because random numbers and buffers must be resumed, too.
inline torch::nn::Sequential model(std::uint64_t seed = 7) {
  manual_seed(seed);
  namespace nn = torch::nn;
  return nn::Sequential(nn::Linear(4, 16), nn::BatchNorm1d(16), nn::ReLU(), nn::Dropout(0.2),
                        nn::Linear(16, 3));
}

inline data::Loaders loaders(std::int64_t batch_size = 8) {
  return {{"train", {points(50), {.batch_size = batch_size, .shuffle = true}}},
          {"valid", {points(30, 2), {.batch_size = 10}}}};
}

// A run that prints nothing to the console.
inline TrainOptions options() {
  TrainOptions options;
  options.model = model();
  options.criterion = torch::nn::CrossEntropyLoss();
  options.optimizer = optim::Adam{.lr = 0.01};
  options.loaders = loaders();
  options.num_epochs = 3;
  options.valid_loader = "valid";
  options.console = false;
  return options;
}

inline TrainResult train(const TrainOptions& options) {
  return SupervisedRunner().train(options);
}

// The message of the exception that the action throws; "" if it throws none.
template <typename Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// Collects warnings from its constructor to its destructor.
class Warnings {
 public:
  Warnings()
      : previous_(set_warning_handler([this](const std::string& text) { texts.push_back(text); })) {
  }
  ~Warnings() { set_warning_handler(previous_); }
  Warnings(const Warnings&) = delete;
  Warnings& operator=(const Warnings&) = delete;

  std::vector<std::string> texts;

 private:
  WarningHandler previous_;
};

// A callback that calls the functions that a test sets for some of the hooks.
struct Hooks : Callback {
  std::function<void(State&)> run_start, epoch_start, loader_start, batch_start, outputs, forward,
      backward, batch_end, step, loader_end, epoch_end, checkpoint, run_end, exception;

  CallbackTraits traits() const override { return {.metric_names = no_metrics()}; }
  void on_run_start(State& s) override { call(run_start, s); }
  void on_epoch_start(State& s) override { call(epoch_start, s); }
  void on_loader_start(State& s) override { call(loader_start, s); }
  void on_batch_start(State& s) override { call(batch_start, s); }
  void on_outputs(State& s) override { call(outputs, s); }
  void on_forward(State& s) override { call(forward, s); }
  void on_backward(State& s) override { call(backward, s); }
  void on_batch_end(State& s) override { call(batch_end, s); }
  void on_step(State& s) override { call(step, s); }
  void on_loader_end(State& s) override { call(loader_end, s); }
  void on_epoch_end(State& s) override { call(epoch_end, s); }
  void on_checkpoint(State& s) override { call(checkpoint, s); }
  void on_run_end(State& s) override { call(run_end, s); }
  void on_exception(State& s) override { call(exception, s); }

 private:
  static void call(const std::function<void(State&)>& hook, State& state) {
    if (hook) hook(state);
  }
};

}  // namespace lockstep::toy

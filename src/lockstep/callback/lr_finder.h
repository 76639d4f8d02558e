// Finds a learning rate: increases it from step to step and observes the loss.
//
//   auto finder = std::make_shared<ls::LRFinderCallback>(ls::LRFinderCallbackOptions{});
//   runner.train(ls::TrainOptions{…, .callbacks = {finder}});
//   finder->suggestion();
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/train/callback.h"

namespace lockstep {

enum class LRScale { kLog, kLinear };

struct LRFinderCallbackOptions {
  double first_lr = 1e-7;
  double final_lr = 1.0;
  std::int64_t num_steps = 100;  // from the first to the last
  LRScale scale = LRScale::kLog;
};

// Ends the run after all rates, or when the loss is four times the smallest one, and gives the
// model the weights that it had before (load_best_on_end would give it those of an epoch in
// between). With a logdir it writes lr_finder.csv. A run with this callback cannot have a
// scheduler. Its checkpoints contain the weights twice: those of now, and those from before.
class LRFinderCallback : public Callback {
 public:
  // Throws ConfigError for values that make no sense.
  explicit LRFinderCallback(LRFinderCallbackOptions options = {});

  struct Point {
    double lr = 0;
    double loss = 0;  // of all workers, smoothed over steps
  };
  const std::vector<Point>& points() const { return points_; }
  // The rate at which the loss falls most steeply; nothing if it never falls.
  std::optional<double> suggestion() const;

  CallbackTraits traits() const override {
    return {.uses_gradients = false,
            .needs_training = true,
            .changes_batch = false,
            .metric_names = no_metrics()};
  }
  std::string agreed_options() const override;
  void check(const State& state) const override;
  void on_run_start(State& state) override;
  void on_forward(State& state) override;
  void on_batch_end(State& state) override;
  void on_step(State& state) override;
  void on_epoch_end(State& state) override;

  // The points so far, and the weights from before, so that a test that is interrupted goes on.
  StateDict state() const override;
  void load_state(const StateDict& state) override;

 private:
  double lr_of(std::int64_t step) const;
  double weight_of_loss(const State& state) const;
  void finish(State& state);
  void request_end(State& state) const;

  LRFinderCallbackOptions options_;
  StateDict before_;
  double sum_ = 0;  // of the step's losses on this worker, each times its weight
  double weight_ = 0;
  bool has_phases_ = false;
  double average_ = 0;
  bool is_done_ = false;
  bool has_loaded_ = false;  // load_state() was called for the next run
  std::vector<Point> points_;
};

}  // namespace lockstep

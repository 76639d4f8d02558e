// Schedulers, which change the learning rate during a run. Users write one of the aggregates, with
// PyTorch's names and defaults; the values are PyTorch's:
//
//   .scheduler = ls::optim::OneCycleLR{.max_lr = 0.1}
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/optim/optimizer.h"
#include "lockstep/state/state_dict.h"

namespace lockstep::optim {

// When a scheduler is stepped: after each training epoch, or after each update.
enum class Per { kEpoch, kBatch };

enum class Anneal { kCos, kLinear };

// The length of the run, for schedules that span it.
struct ScheduleContext {
  std::int64_t num_epochs = 1;
  std::int64_t steps_per_epoch = 1;  // updates, not samples
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;

  virtual std::string name() const = 0;
  virtual Per per() const = 0;

  // Whether step() needs the value of the observed metric.
  virtual bool needs_metric() const = 0;

  // Whether its options do not say if a smaller metric is better. set_minimize() then sets it; by
  // default a smaller one is better.
  virtual bool needs_direction() const { return false; }
  virtual void set_minimize(bool /*minimize*/) {}

  // Sets the learning rate of the next updates.
  virtual void step(std::optional<double> metric = std::nullopt) = 0;

  // The position in the schedule and the learning rate, not the options. Loading also sets the
  // optimizer's learning rate. Throws CheckpointError for the state of another scheduler, or of one
  // with another length.
  virtual StateDict state() const = 0;
  virtual void load_state(const StateDict& state) = 0;
};

// Multiplies by gamma every step_size steps.
struct StepLR {
  std::optional<std::int64_t> step_size;  // required
  double gamma = 0.1;
  Per per = Per::kEpoch;
};

// Multiplies by gamma at each milestone; a milestone that is listed twice counts twice.
struct MultiStepLR {
  std::vector<std::int64_t> milestones;  // in steps, 1 is after the first
  double gamma = 0.1;
  Per per = Per::kEpoch;
};

// Multiplies by gamma in every step.
struct ExponentialLR {
  std::optional<double> gamma;  // required
  Per per = Per::kEpoch;
};

// Half a cosine from the optimizer's learning rate to eta_min, and back up if the run continues.
struct CosineAnnealingLR {
  std::optional<std::int64_t> t_max;  // steps to eta_min; default: the steps of the whole run
  double eta_min = 0.0;
  Per per = Per::kEpoch;
};

// A warm-up: from start_factor to end_factor times the optimizer's learning rate, in equal steps.
struct LinearLR {
  double start_factor = 1.0 / 3.0;
  double end_factor = 1.0;
  std::int64_t total_iters = 5;  // steps to end_factor, which then stays
  Per per = Per::kEpoch;
};

// Up from max_lr / div_factor to max_lr, then down to max_lr / div_factor / final_div_factor;
// momentum moves the opposite way. The learning rate is set when the scheduler is made. More than
// total_steps steps throw.
struct OneCycleLR {
  std::optional<double> max_lr;             // required
  std::optional<std::int64_t> total_steps;  // default: the steps of the whole run
  double pct_start = 0.3;                   // the part of the cycle in which the rate rises
  Anneal anneal = Anneal::kCos;
  bool cycle_momentum = true;   // needs an optimizer with momentum
  double base_momentum = 0.85;  // at the top
  double max_momentum = 0.95;   // at both ends
  double div_factor = 25.0;
  double final_div_factor = 1e4;
  bool three_phase = false;  // first down to the initial rate, then to the final one
  Per per = Per::kBatch;
};

// Multiplies by factor when the metric has not improved for more than `patience` steps.
struct ReduceLROnPlateau {
  std::optional<bool> minimize;  // whether a smaller metric is better; default: as the metric says
  double factor = 0.1;
  std::int64_t patience = 10;
  double threshold = 1e-4;         // the smallest change that counts as an improvement,
  bool threshold_relative = true;  // relative to the best metric, or absolute
  std::int64_t cooldown = 0;       // steps after a reduction in which nothing is counted
  double min_lr = 0.0;
  double eps = 1e-8;  // smaller reductions are not made
  Per per = Per::kEpoch;
};

// Any of the above, or nothing.
class SchedulerSpec {
 public:
  SchedulerSpec() = default;
  SchedulerSpec(const StepLR& options) : choice_(options) {}
  SchedulerSpec(const MultiStepLR& options) : choice_(options) {}
  SchedulerSpec(const ExponentialLR& options) : choice_(options) {}
  SchedulerSpec(const CosineAnnealingLR& options) : choice_(options) {}
  SchedulerSpec(const LinearLR& options) : choice_(options) {}
  SchedulerSpec(const OneCycleLR& options) : choice_(options) {}
  SchedulerSpec(const ReduceLROnPlateau& options) : choice_(options) {}

  bool has_value() const { return choice_.index() != 0; }
  explicit operator bool() const { return has_value(); }

  // The optimizer must outlive the scheduler. Throws ConfigError for a value out of its range, and
  // if this spec is empty.
  std::unique_ptr<Scheduler> make(Optimizer& optimizer, const ScheduleContext& context) const;

  using Choice = std::variant<std::monostate, StepLR, MultiStepLR, ExponentialLR, CosineAnnealingLR,
                              LinearLR, OneCycleLR, ReduceLROnPlateau>;
  const Choice& choice() const { return choice_; }

 private:
  Choice choice_;
};

}  // namespace lockstep::optim

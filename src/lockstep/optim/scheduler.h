// Schedulers, which change the learning rate during a run. Users write one of the aggregates, with
// PyTorch's names and defaults; the values are PyTorch's. They can be put one after the other, and
// a function or a class of your own can decide, too:
//
//   .scheduler = ls::optim::OneCycleLR{.max_lr = 0.1}
//   .scheduler = ls::optim::warmup(500, ls::optim::StepLR{.step_size = 30})
//   .scheduler = ls::optim::FunctionLR{.factor = my_function}
//   .scheduler = [](ls::optim::Optimizer& optimizer, const ls::optim::ScheduleContext& run) {
//     return std::make_unique<MyScheduler>(optimizer, run);
//   }
//
// docs/guide/own-scheduler.md has complete programs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
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
  // Updates of the whole run, if its last epoch is shorter than the others.
  std::optional<std::int64_t> num_steps = std::nullopt;
  // Where the scheduler begins, if others come before it in a chain: epochs and updates that are
  // over by then.
  std::int64_t epochs_before = 0;
  std::int64_t steps_before = 0;
  // The steps of this scheduler after which the next one of a chain begins. Nothing: none does.
  std::optional<std::int64_t> steps_until_next = std::nullopt;

  // The steps that a scheduler makes from its beginning to the end of the run.
  std::int64_t steps(Per per) const {
    if (per == Per::kEpoch) return num_epochs - epochs_before;
    return num_steps.value_or(num_epochs * steps_per_epoch) - steps_before;
  }
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;

  virtual std::string name() const = 0;
  // When the next step() is due, and whether it needs the value of the observed metric. In a chain,
  // both may change with a step.
  virtual Per per() const = 0;
  virtual bool needs_metric() const { return false; }

  // Whether any step of the run needs the metric.
  virtual bool will_need_metric() const { return needs_metric(); }

  // Whether its options do not say if a smaller metric is better. set_minimize() then sets it; by
  // default a smaller one is better.
  virtual bool needs_direction() const { return false; }
  virtual void set_minimize(bool /*minimize*/) {}

  // The options on which all ranks of a run must agree, as text. It is compared when the schedulers
  // of all ranks are made. By default it has the name, `per` and the numbers and texts of state():
  // override it if your class has options that are in none of these.
  virtual std::string describe() const;

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

// (1 - step / total_iters)^power times the optimizer's learning rate; then it stays zero.
struct PolynomialLR {
  std::optional<std::int64_t> total_iters;  // steps to zero; default: the steps of the whole run
  double power = 1.0;
  Per per = Per::kEpoch;
};

// Half a cosine from the optimizer's learning rate to eta_min, again and again.
struct CosineAnnealingWarmRestarts {
  std::optional<std::int64_t> t_0;  // steps of the first cycle; required
  std::int64_t t_mult = 1;          // every cycle is this many times as long as the one before
  double eta_min = 0.0;
  Per per = Per::kEpoch;
};

// How the height of a cycle changes.
enum class CycleMode {
  kTriangular,   // not at all
  kTriangular2,  // half as high as the cycle before
  kExpRange,     // by gamma in each step
};

// From base_lr up to max_lr and down again, in equal steps; momentum moves the opposite way. The
// learning rate is set when the scheduler is made.
struct CyclicLR {
  std::optional<double> base_lr;               // default: the optimizer's
  std::optional<double> max_lr;                // required
  std::int64_t step_size_up = 2000;            // steps from base_lr to max_lr
  std::optional<std::int64_t> step_size_down;  // and back; default: step_size_up
  CycleMode mode = CycleMode::kTriangular;
  double gamma = 1.0;          // for kExpRange
  bool cycle_momentum = true;  // needs an optimizer with momentum
  double base_momentum = 0.8;  // at max_lr
  double max_momentum = 0.9;   // at base_lr
  Per per = Per::kBatch;
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

// The learning rate is the optimizer's times factor(step, run). `step` counts the steps that were
// made, from 0: factor(0, run) applies from the start. The factor must depend on its arguments
// only; a resumed run then has the same rates.
struct FunctionLR {
  std::function<double(std::int64_t step, const ScheduleContext& run)> factor;  // required
  Per per = Per::kEpoch;
};

class SchedulerSpec;

// Several schedulers, one after the other: see chain().
struct SequentialLR;

template <typename F>
concept MakesScheduler =
    std::is_invocable_r_v<std::unique_ptr<Scheduler>, F, Optimizer&, const ScheduleContext&>;

// Any of the above, a function that makes a scheduler of your own class, or nothing.
class SchedulerSpec {
 public:
  using Factory = std::function<std::unique_ptr<Scheduler>(Optimizer&, const ScheduleContext&)>;
  using SequentialPtr = std::shared_ptr<const SequentialLR>;

  SchedulerSpec() = default;
  SchedulerSpec(const StepLR& options) : choice_(options) {}
  SchedulerSpec(const MultiStepLR& options) : choice_(options) {}
  SchedulerSpec(const ExponentialLR& options) : choice_(options) {}
  SchedulerSpec(const CosineAnnealingLR& options) : choice_(options) {}
  SchedulerSpec(const LinearLR& options) : choice_(options) {}
  SchedulerSpec(const OneCycleLR& options) : choice_(options) {}
  SchedulerSpec(const PolynomialLR& options) : choice_(options) {}
  SchedulerSpec(const CosineAnnealingWarmRestarts& options) : choice_(options) {}
  SchedulerSpec(const CyclicLR& options) : choice_(options) {}
  SchedulerSpec(const ReduceLROnPlateau& options) : choice_(options) {}
  SchedulerSpec(const FunctionLR& options) : choice_(options) {}
  SchedulerSpec(const SequentialLR& options);

  // The function is called when training starts. The optimizer outlives the scheduler.
  template <MakesScheduler F>
  SchedulerSpec(F factory) : choice_(Factory(std::move(factory))) {}

  bool has_value() const { return choice_.index() != 0; }
  explicit operator bool() const { return has_value(); }

  // The optimizer must outlive the scheduler. Throws ConfigError for a value out of its range, and
  // if this spec is empty.
  std::unique_ptr<Scheduler> make(Optimizer& optimizer, const ScheduleContext& context) const;

  using Choice = std::variant<std::monostate, StepLR, MultiStepLR, ExponentialLR, CosineAnnealingLR,
                              LinearLR, OneCycleLR, PolynomialLR, CosineAnnealingWarmRestarts,
                              CyclicLR, ReduceLROnPlateau, FunctionLR, SequentialPtr, Factory>;
  const Choice& choice() const { return choice_; }

 private:
  Choice choice_;
};

// As in PyTorch, every part begins with the learning rate that the optimizer had at the start of
// the run, at step milestones[i], and counts its own steps from there. A part that spans the rest
// of the run by default (CosineAnnealingLR, OneCycleLR) spans what is left of it. Parts may differ
// in `per`: then the distance of two milestones is in steps of the part between them.
struct SequentialLR {
  std::vector<SchedulerSpec> schedulers;  // at least one; a part may be a SequentialLR
  std::vector<std::int64_t> milestones;   // one less; increasing
};

// One scheduler after the other:
//
//   chain({LinearLR{.total_iters = 5}, StepLR{.step_size = 30}}, {5})
SchedulerSpec chain(std::vector<SchedulerSpec> schedulers, std::vector<std::int64_t> milestones);

struct WarmupOptions {
  double start_factor = 0.01;  // of the optimizer's learning rate, in the first step
  Per per = Per::kBatch;       // a step of the warm-up is a batch or an epoch
};

// The learning rate rises in equal steps to the optimizer's. Then `then` begins; nothing: the rate
// stays.
SchedulerSpec warmup(std::int64_t steps, SchedulerSpec then = {},
                     const WarmupOptions& options = {});

}  // namespace lockstep::optim

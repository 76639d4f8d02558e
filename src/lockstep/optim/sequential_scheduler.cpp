#include "lockstep/optim/sequential_scheduler.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/ranges.h>

#include "lockstep/base/check.h"
#include "lockstep/base/error.h"
#include "lockstep/base/option_text.h"
#include "lockstep/optim/chained_scheduler.h"

namespace lockstep::optim {
namespace {

constexpr const char* kSequential = "SequentialLR";

// The context of the part after one that made `steps` steps. If the part before stepped in batches,
// the end of the epoch in which it ended is a step of the new one.
ScheduleContext after(ScheduleContext context, Per per, std::int64_t steps) {
  const std::int64_t per_epoch = std::max<std::int64_t>(context.steps_per_epoch, 1);
  if (per == Per::kEpoch) {
    context.epochs_before += steps;
    context.steps_before = context.epochs_before * per_epoch;
  } else {
    context.steps_before += steps;
    context.epochs_before = std::max(context.epochs_before, (context.steps_before - 1) / per_epoch);
  }
  return context;
}

class SequentialScheduler final : public Scheduler {
 public:
  SequentialScheduler(const SequentialLR& options, Optimizer& optimizer,
                      const ScheduleContext& context)
      : options_(options), optimizer_(optimizer), base_lr_(optimizer.lr()) {
    // All parts are made once, so that a mistake in a later one is found now.
    const auto momentum = optimizer_.momentum();
    contexts_.push_back(context);
    std::int64_t before = 0;
    for (std::size_t i = 0; i + 1 < options_.schedulers.size(); ++i) {
      const std::int64_t steps = options_.milestones[i] - before;
      contexts_[i].steps_until_next = steps;
      begin(i);
      check_part();
      contexts_.push_back(after(contexts_[i], part_->per(), steps));
      before = options_.milestones[i];
    }
    // This chain may be a part of another one.
    contexts_.back().steps_until_next.reset();
    if (context.steps_until_next) {
      contexts_.back().steps_until_next = *context.steps_until_next - before;
    }
    begin(contexts_.size() - 1);
    check_part();
    if (momentum != optimizer_.momentum()) optimizer_.set_momentum(*momentum);
    begin(0);
  }

  std::string name() const override { return kSequential; }
  Per per() const override { return part_->per(); }
  bool needs_metric() const override { return part_->needs_metric(); }
  bool will_need_metric() const override { return will_need_metric_; }
  bool needs_direction() const override { return needs_direction_; }
  void set_minimize(bool minimize) override {
    minimize_ = minimize;
    tell_direction();
  }

  std::string describe() const override {
    return fmt::format("{}({})", kSequential,
                       OptionText()
                           .with("schedulers", descriptions_)
                           .with("milestones", options_.milestones)
                           .str());
  }

  void step(std::optional<double> metric) override {
    ++num_steps_;
    const bool ends =
        index_ < options_.milestones.size() && num_steps_ == options_.milestones[index_];
    if (ends) {
      begin(index_ + 1);
    } else {
      part_->step(metric);
    }
  }

  StateDict state() const override {
    return {
        {"name", name()},      {"step", num_steps_},    {"part", static_cast<std::int64_t>(index_)},
        {"base_lr", base_lr_}, {"lr", optimizer_.lr()}, {"state", part_->state()}};
  }

  void load_state(const StateDict& state) override {
    check_scheduler_name(*this, state);
    const auto index = state.get<std::int64_t>("part");
    const auto parts = static_cast<std::int64_t>(options_.schedulers.size());
    if (index < 0 || index >= parts) {
      throw CheckpointError(
          "scheduler {}: the checkpoint was made in scheduler {} of a chain, this chain has {}",
          kSequential, index + 1, parts);
    }
    const auto num_steps = state.get<std::int64_t>("step");
    const auto of_part = state.get<StateDict>("state");
    base_lr_ = state.get<double>("base_lr");
    begin(static_cast<std::size_t>(index));
    part_->load_state(of_part);
    num_steps_ = num_steps;
  }

 private:
  // The part begins with the learning rate of the start of the run.
  void begin(std::size_t index) {
    optimizer_.set_lr(base_lr_);
    part_ = options_.schedulers[index].make(optimizer_, contexts_[index]);
    index_ = index;
    tell_direction();
  }

  void check_part() {
    if (part_->needs_metric() && part_->per() == Per::kBatch) {
      throw ConfigError("scheduler {}: needs a loader's metric, so it cannot step after each batch",
                        part_->name());
    }
    descriptions_.push_back(part_->describe());
    will_need_metric_ |= part_->will_need_metric();
    needs_direction_ |= part_->needs_direction();
  }

  void tell_direction() {
    if (minimize_ && part_->needs_direction()) part_->set_minimize(*minimize_);
  }

  SequentialLR options_;
  Optimizer& optimizer_;
  std::vector<ScheduleContext> contexts_;  // one per part
  std::vector<std::string> descriptions_;  // of the parts when they begin
  double base_lr_;
  std::unique_ptr<Scheduler> part_;  // the current one
  std::size_t index_ = 0;            // of the current part
  std::int64_t num_steps_ = 0;       // of all parts
  bool will_need_metric_ = false;
  bool needs_direction_ = false;
  std::optional<bool> minimize_;
};

}  // namespace

void check_chain(const SequentialLR& options) {
  const Check check(std::string("scheduler ") + kSequential);
  check.require(!options.schedulers.empty(), "schedulers", "at least one", "none");
  check.require(
      options.milestones.size() + 1 == options.schedulers.size(), "milestones",
      fmt::format("{} for {} schedulers", options.schedulers.size() - 1, options.schedulers.size()),
      options.milestones.size());
  std::int64_t before = 0;
  for (const std::int64_t milestone : options.milestones) {
    check.require(milestone > before, "milestones", "positive integers that increase",
                  fmt::format("[{}]", fmt::join(options.milestones, ", ")));
    before = milestone;
  }
}

std::unique_ptr<Scheduler> make_scheduler(const SequentialLR& options, Optimizer& optimizer,
                                          const ScheduleContext& context) {
  check_chain(options);
  return std::make_unique<SequentialScheduler>(options, optimizer, context);
}

}  // namespace lockstep::optim

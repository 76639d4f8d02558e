// The schedulers whose next learning rate follows from the present one: StepLR, MultiStepLR,
// ExponentialLR, CosineAnnealingLR and LinearLR. As in PyTorch, what else changes the learning rate
// is not undone by them.
#pragma once

#include <memory>

#include "lockstep/optim/scheduler.h"

namespace lockstep::optim {

std::unique_ptr<Scheduler> make_scheduler(const StepLR& options, Optimizer& optimizer,
                                          const ScheduleContext& context);
std::unique_ptr<Scheduler> make_scheduler(const MultiStepLR& options, Optimizer& optimizer,
                                          const ScheduleContext& context);
std::unique_ptr<Scheduler> make_scheduler(const ExponentialLR& options, Optimizer& optimizer,
                                          const ScheduleContext& context);
std::unique_ptr<Scheduler> make_scheduler(const CosineAnnealingLR& options, Optimizer& optimizer,
                                          const ScheduleContext& context);
std::unique_ptr<Scheduler> make_scheduler(const LinearLR& options, Optimizer& optimizer,
                                          const ScheduleContext& context);

// The number of steps that a scheduler makes in the whole run. Throws ConfigError, naming the
// scheduler, where the run has none.
std::int64_t steps_of_run(const std::string& scheduler, Per per, const ScheduleContext& context);

// Throws CheckpointError where `state` is another scheduler's.
void check_scheduler_name(const Scheduler& scheduler, const StateDict& state);

}  // namespace lockstep::optim

// The schedulers that compute the next learning rate from the present one: StepLR, MultiStepLR,
// ExponentialLR, CosineAnnealingLR, LinearLR and PolynomialLR. As in PyTorch, they keep changes of
// the learning rate that were made by something else. And CosineAnnealingWarmRestarts, which
// computes it from the first one.
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
std::unique_ptr<Scheduler> make_scheduler(const PolynomialLR& options, Optimizer& optimizer,
                                          const ScheduleContext& context);
std::unique_ptr<Scheduler> make_scheduler(const CosineAnnealingWarmRestarts& options,
                                          Optimizer& optimizer, const ScheduleContext& context);

// The number of steps that a scheduler makes in the whole run. Throws ConfigError, naming the
// scheduler, if the run has none.
std::int64_t steps_of_run(const std::string& scheduler, Per per, const ScheduleContext& context);

// Throws CheckpointError if `state` is that of another scheduler.
void check_scheduler_name(const Scheduler& scheduler, const StateDict& state);

}  // namespace lockstep::optim

#include "lockstep/optim/flat_parameters.h"
#include "lockstep/optim/sequential_scheduler.h"
#include "lockstep/recipe/targets.h"
#include "lockstep/recipe/values.h"

namespace lockstep::recipe {
namespace {

using config::Field;

// Builds the scheduler once for a check: an invalid value is reported before workers start.
optim::SchedulerSpec tried(const optim::SchedulerSpec& spec) {
  torch::Tensor trial = torch::zeros({1}, torch::requires_grad());
  optim::FlatParameters parameters({{"trial", trial}});
  const auto optimizer = optim::OptimizerSpec(optim::SGD{.momentum = 0.9}).make(parameters);
  spec.make(*optimizer, {.num_epochs = 100, .steps_per_epoch = 100});
  return spec;
}

// A target "Warmup".
struct WarmupRecipe {
  std::optional<std::int64_t> steps;
  optim::SchedulerSpec then;
  optim::WarmupOptions options;
};

template <typename Options>
void add(Targets& targets, const std::string& name, const std::string& about,
         std::vector<Field<Options>> fields) {
  fields.push_back({"per", &Options::per, "whether a step is made every epoch or every batch"});
  targets.schedulers.add<Options>(name, about, fields,
                                  [](const Options& options) { return tried(options); });
}

// Schedulers that consist of others. They are not tried, because the length of the run is not known
// here, and a part may begin late; their parts were tried.
void add_chains(Targets& targets) {
  using Q = optim::SequentialLR;
  targets.schedulers.add<Q>(
      "SequentialLR", "One scheduler after the other; each begins with the optimizer's rate.",
      {config::required("schedulers", &Q::schedulers, "in their order"),
       config::required("milestones", &Q::milestones, "steps at which the next one begins")},
      [](const Q& options) {
        optim::check_chain(options);
        return optim::SchedulerSpec(options);
      });
  using W = WarmupRecipe;
  using O = optim::WarmupOptions;
  std::vector<Field<W>> fields = {
      config::required("steps", &W::steps, "in which the rate rises to the optimizer's"),
      {"then", &W::then, "the scheduler that follows; default: the rate stays"}};
  for (const auto& field : std::vector<Field<O>>{
           {"start_factor", &O::start_factor, "of the learning rate at first"},
           {"per", &O::per, "whether a step of the warm-up is an epoch or a batch"}}) {
    fields.push_back(field.inside(&W::options));
  }
  targets.schedulers.add<W>("Warmup", "A rise in equal steps before any scheduler.", fields,
                            [](const W& w) {
                              tried(optim::warmup(*w.steps, {}, w.options));
                              return optim::warmup(*w.steps, w.then, w.options);
                            });
}

}  // namespace

void add_schedulers(Targets& targets) {
  using S = optim::StepLR;
  add<S>(targets, "StepLR", "Multiplies by gamma every step_size steps.",
         {config::required("step_size", &S::step_size, "steps between two changes"),
          {"gamma", &S::gamma, "what it multiplies by"}});
  using M = optim::MultiStepLR;
  add<M>(targets, "MultiStepLR", "Multiplies by gamma at each milestone.",
         {config::required("milestones", &M::milestones, "in steps; 1 is after the first step"),
          {"gamma", &M::gamma, "what it multiplies by"}});
  using E = optim::ExponentialLR;
  add<E>(targets, "ExponentialLR", "Multiplies by gamma in every step.",
         {config::required("gamma", &E::gamma, "what it multiplies by")});
  using C = optim::CosineAnnealingLR;
  add<C>(targets, "CosineAnnealingLR", "Half a cosine down to eta_min.",
         {{"t_max", &C::t_max, "steps to eta_min; default: all steps of the run"},
          {"eta_min", &C::eta_min, "the learning rate at the end"}});
  using L = optim::LinearLR;
  add<L>(targets, "LinearLR", "A warm-up, in equal steps.",
         {{"start_factor", &L::start_factor, "of the learning rate at first"},
          {"end_factor", &L::end_factor, "of the learning rate at the end"},
          {"total_iters", &L::total_iters, "steps to end_factor"}});
  using O = optim::OneCycleLR;
  add<O>(
      targets, "OneCycleLR", "Up to max_lr, then down to almost zero.",
      {config::required("max_lr", &O::max_lr, "the largest learning rate"),
       {"total_steps", &O::total_steps, "default: all steps of the run"},
       {"pct_start", &O::pct_start, "the part of the cycle in which it rises"},
       {"anneal", &O::anneal, "the curve between two learning rates"},
       {"cycle_momentum", &O::cycle_momentum,
        "momentum falls as lr rises; needs an optimizer with it"},
       {"base_momentum", &O::base_momentum, "momentum at max_lr"},
       {"max_momentum", &O::max_momentum, "momentum at both ends"},
       {"div_factor", &O::div_factor, "the first learning rate is max_lr / div_factor"},
       {"final_div_factor", &O::final_div_factor, "the last one is the first / final_div_factor"},
       {"three_phase", &O::three_phase, "falls as it rose, and then in a third phase to the end"}});
  using P = optim::ReduceLROnPlateau;
  add<P>(
      targets, "ReduceLROnPlateau", "Multiplies by factor when the metric stops improving.",
      {{"minimize", &P::minimize, "whether smaller is better; default: the metric's own direction"},
       {"factor", &P::factor, "what it multiplies by"},
       {"patience", &P::patience, "steps without improvement that are tolerated"},
       {"threshold", &P::threshold, "the smallest change that counts as an improvement"},
       {"threshold_relative", &P::threshold_relative,
        "threshold is relative to the best metric; else absolute"},
       {"cooldown", &P::cooldown, "steps after a reduction that do not count"},
       {"min_lr", &P::min_lr, "the smallest learning rate"},
       {"eps", &P::eps, "a reduction smaller than this is not made"}});
  add_chains(targets);
}

}  // namespace lockstep::recipe

#include "lockstep/optim/flat_parameters.h"
#include "lockstep/recipe/targets.h"
#include "lockstep/recipe/values.h"

namespace lockstep::recipe {
namespace {

using config::Field;

template <typename Options>
void add(Targets& targets, const std::string& name, const std::string& about,
         std::vector<Field<Options>> fields) {
  fields.push_back({"per", &Options::per, "when a step is made"});
  targets.schedulers.add<Options>(name, about, fields, [](const Options& options) {
    // A value out of its range shall not wait for the first worker.
    torch::Tensor trial = torch::zeros({1}, torch::requires_grad());
    optim::FlatParameters parameters({{"trial", trial}});
    const auto optimizer = optim::OptimizerSpec(optim::SGD{.momentum = 0.9}).make(parameters);
    const optim::SchedulerSpec spec(options);
    spec.make(*optimizer, {.num_epochs = 100, .steps_per_epoch = 100});
    return spec;
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
         {config::required("milestones", &M::milestones, "in steps, 1 is after the first"),
          {"gamma", &M::gamma, "what it multiplies by"}});
  using E = optim::ExponentialLR;
  add<E>(targets, "ExponentialLR", "Multiplies by gamma in every step.",
         {config::required("gamma", &E::gamma, "what it multiplies by")});
  using C = optim::CosineAnnealingLR;
  add<C>(targets, "CosineAnnealingLR", "Half a cosine down to eta_min.",
         {{"t_max", &C::t_max, "steps to eta_min; default: the whole run's"},
          {"eta_min", &C::eta_min, "where it ends"}});
  using L = optim::LinearLR;
  add<L>(targets, "LinearLR", "A warm-up, in equal steps.",
         {{"start_factor", &L::start_factor, "of the learning rate at first"},
          {"end_factor", &L::end_factor, "of the learning rate at last"},
          {"total_iters", &L::total_iters, "steps to end_factor"}});
  using O = optim::OneCycleLR;
  add<O>(targets, "OneCycleLR", "Up to max_lr, then down to next to nothing.",
         {config::required("max_lr", &O::max_lr, "at the top"),
          {"total_steps", &O::total_steps, "default: the whole run's"},
          {"pct_start", &O::pct_start, "the part of the cycle that goes up"},
          {"anneal", &O::anneal, "the curve"},
          {"cycle_momentum", &O::cycle_momentum, "the other way; needs an optimizer with momentum"},
          {"base_momentum", &O::base_momentum, "at the top"},
          {"max_momentum", &O::max_momentum, "at both ends"},
          {"div_factor", &O::div_factor, "it starts at max_lr / div_factor"},
          {"final_div_factor", &O::final_div_factor, "and ends at that / final_div_factor"},
          {"three_phase", &O::three_phase, "down as it went up, and only then to the end"}});
  using P = optim::ReduceLROnPlateau;
  add<P>(targets, "ReduceLROnPlateau", "Multiplies by factor when the metric stops improving.",
         {{"minimize", &P::minimize, "whether a lower metric is a better one; default: as it says"},
          {"factor", &P::factor, "what it multiplies by"},
          {"patience", &P::patience, "steps without improvement that it bears"},
          {"threshold", &P::threshold, "the least that counts as an improvement"},
          {"threshold_relative", &P::threshold_relative, "to the best metric; else absolute"},
          {"cooldown", &P::cooldown, "steps after a reduction in which nothing is counted"},
          {"min_lr", &P::min_lr, "it goes no lower"},
          {"eps", &P::eps, "a reduction by less is not made"}});
}

}  // namespace lockstep::recipe

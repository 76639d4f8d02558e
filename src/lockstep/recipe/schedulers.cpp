#include "lockstep/optim/flat_parameters.h"
#include "lockstep/optim/option_tables.h"
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
  // The run's learning rate is not known here. With zero, no limit of a schedule is below it.
  const auto optimizer =
      optim::OptimizerSpec(optim::SGD{.lr = 0.0, .momentum = 0.9}).make(parameters);
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
void add_scheduler(Targets& targets) {
  std::vector<Field<Options>> fields;
  optim::for_each_field<Options>([&](const auto& option) {
    Field<Options> field(option.name, option.member, option.about);
    fields.push_back(option.is_required ? std::move(field).required() : std::move(field));
  });
  using Table = optim::OptionTable<Options>;
  targets.schedulers.add<Options>(Table::kName, Table::kAbout, fields,
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
  add_scheduler<optim::StepLR>(targets);
  add_scheduler<optim::MultiStepLR>(targets);
  add_scheduler<optim::ExponentialLR>(targets);
  add_scheduler<optim::CosineAnnealingLR>(targets);
  add_scheduler<optim::LinearLR>(targets);
  add_scheduler<optim::OneCycleLR>(targets);
  add_scheduler<optim::PolynomialLR>(targets);
  add_scheduler<optim::CosineAnnealingWarmRestarts>(targets);
  add_scheduler<optim::CyclicLR>(targets);
  add_scheduler<optim::ReduceLROnPlateau>(targets);
  add_chains(targets);
}

}  // namespace lockstep::recipe

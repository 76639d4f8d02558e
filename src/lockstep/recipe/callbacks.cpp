#include "lockstep/callback/batch_overfit.h"
#include "lockstep/callback/batch_transform.h"
#include "lockstep/callback/check_run.h"
#include "lockstep/callback/checkpoint.h"
#include "lockstep/callback/control_flow.h"
#include "lockstep/callback/criterion.h"
#include "lockstep/callback/early_stopping.h"
#include "lockstep/callback/ema.h"
#include "lockstep/callback/freeze.h"
#include "lockstep/callback/gradient_norms.h"
#include "lockstep/callback/graph.h"
#include "lockstep/callback/histograms.h"
#include "lockstep/callback/lr_finder.h"
#include "lockstep/callback/metric_aggregation.h"
#include "lockstep/callback/periodic_loader.h"
#include "lockstep/callback/progress_bar.h"
#include "lockstep/callback/scheduler.h"
#include "lockstep/callback/soft_update.h"
#include "lockstep/callback/swa.h"
#include "lockstep/callback/timer.h"
#include "lockstep/recipe/targets.h"
#include "lockstep/recipe/values.h"

namespace lockstep::recipe {
namespace {

using config::Field;

template <typename Callback, typename Options>
void add(Targets& targets, const std::string& name, const std::string& about,
         const std::vector<Field<Options>>& fields) {
  targets.callbacks.add<Options>(name, about, fields,
                                 [](const Options& o) { return std::make_shared<Callback>(o); });
}

void add_criterion(Targets& targets) {
  using C = CriterionCallbackOptions;
  add<CriterionCallback, C>(
      targets, "CriterionCallback", "A further loss, reported as a metric or added to the loss.",
      {config::required("criterion", &C::criterion, "what computes it"),
       {"input_key", &C::input_key, "the model's output in the batch"},
       {"target_key", &C::target_key, "labels in the batch"},
       {"metric_key", &C::metric_key, "its name among the metrics"},
       {"weight", &C::weight, "its factor in the loss; 0: it is only reported"},
       {"loss_key", &C::loss_key, "the loss it is added to"}});
}

void add_graph(Targets& targets) {
  using G = GraphCallbackOptions;
  add<GraphCallback, G>(
      targets, "GraphCallback", "The model's graph for TensorBoard.",
      {{"input_keys", &G::input_keys, "values of a batch that go into the model, in their order"},
       {"network", &G::network, "one of several; default: the only one"}});
}

// Functions cannot be written in a config, so their fields are missing here.
void add_changes(Targets& targets) {
  using M = MetricAggregationCallbackOptions;
  add<MetricAggregationCallback, M>(
      targets, "MetricAggregationCallback", "One metric from several.",
      {config::required("metric_key", &M::metric_key, "the name of the result"),
       {"metrics", &M::metrics, "their names"},
       {"weights", &M::weights, "instead of metrics, for a weighted mode: names and weights"},
       {"mode", &M::mode, "how they become one"},
       {"scope", &M::scope, "metrics of each batch, or of a pass over a loader"},
       {"multiplier", &M::multiplier, "of the result"}});
  using B = BatchTransformCallbackOptions;
  add<BatchTransformCallback, B>(
      targets, "BatchTransformCallback", "Transforms a tensor of every batch.",
      {config::required("transform", &B::transform, "what is done to it"),
       {"scope", &B::scope, "before the model gets the batch, or after its outputs are there"},
       {"input_key", &B::input_key, "the tensor in the batch"},
       {"output_key", &B::output_key, "where the result is put; default: input_key"}});
}

// Weights that are made of those that are trained.
void add_averages(Targets& targets) {
  using E = EmaCallbackOptions;
  add<EmaCallback, E>(
      targets, "EmaCallback",
      "A moving average of the weights, which is evaluated and saved instead of them.",
      {{"decay", &E::decay, "of the average in an update"},
       {"every", &E::every, "averages after every n-th update of the model"},
       {"start_epoch", &E::start_epoch, "the first epoch in which it averages"},
       {"start_step", &E::start_step, "the first update of the run after which it averages"},
       {"warmup", &E::warmup, "begins with a small decay, as timm does"},
       {"warmup_gamma", &E::warmup_gamma, "the decay of update n: 1 - (1 + n / gamma)^-power"},
       {"warmup_power", &E::warmup_power, "see warmup_gamma"},
       {"networks", &E::networks, "to average; default: all that an optimizer trains"},
       {"remake_batch_norm", &E::remake_batch_norm,
        "computes the statistics of batch norm after every epoch, instead of averaging them"}});
  using S = SwaCallbackOptions;
  add<SwaCallback, S>(
      targets, "SwaCallback",
      "The mean of the weights of the last epochs, which is evaluated and saved instead of them.",
      {{"start_epoch", &S::start_epoch,
        "the first epoch that is averaged; default: after three quarters of the epochs"},
       {"start_step", &S::start_step, "the first update of the run after which it averages"},
       {"every", &S::every, "averages after every n-th update; default: after every epoch"},
       {"lr", &S::lr, "the learning rate from start_epoch on; default: as without averaging"},
       {"anneal_epochs", &S::anneal_epochs, "in which the learning rate goes to lr; 0: at once"},
       {"anneal", &S::anneal, "how the learning rate goes to lr"},
       {"networks", &S::networks, "to average; default: all that an optimizer trains"},
       {"remake_batch_norm", &S::remake_batch_norm,
        "computes the statistics of batch norm from the train data, after every epoch"}});
  using U = SoftUpdateCallbackOptions;
  add<SoftUpdateCallback, U>(
      targets, "SoftUpdateCallback", "Lets a network follow another one: a teacher, a target.",
      {config::required("source", &U::source, "the network that is followed"),
       config::required("target", &U::target, "the network that follows, which is not trained"),
       {"tau", &U::tau, "target = tau x source + (1 - tau) x target"},
       {"every", &U::every, "after every n-th update of the model"},
       {"copy_at_start", &U::copy_at_start, "the target begins as a copy of the source"}});
}

// Observers of the gradients of the model.
void add_gradients(Targets& targets) {
  using G = GradientNormsCallbackOptions;
  add<GradientNormsCallback, G>(
      targets, "GradientNormsCallback", "Norms of gradients, layer by layer, as metrics.",
      {{"by", &G::by, "one norm per parameter, or per module"},
       {"names", &G::names, "of the parameters, or patterns: \"encoder.*\"; default: all"},
       {"every", &G::every, "measures every n-th update of the model"}});
  using H = HistogramsCallbackOptions;
  add<HistogramsCallback, H>(
      targets, "HistogramsCallback", "Histograms of weights and gradients, for TensorBoard.",
      {{"names", &H::names, "of the parameters, or patterns: \"encoder.*\"; default: all"},
       {"weights", &H::weights, "histograms of weights"},
       {"gradients", &H::gradients, "histograms of gradients"},
       {"every_epochs", &H::every_epochs, "after every n-th epoch"},
       {"every_steps", &H::every_steps, "instead: after every n-th update of the model"}});
}

struct ControlFlowRecipe {
  CallbackPtr callback;
  ControlFlowCallbackOptions flow;
};

// When other callbacks are called, and which loaders an epoch has.
void add_flow(Targets& targets) {
  using R = ControlFlowRecipe;
  std::vector<Field<R>> fields = {config::required("callback", &R::callback, "what is called")};
  using F = ControlFlowCallbackOptions;
  for (const auto& field : std::vector<Field<F>>{
           {"loaders", &F::loaders, "only in these"},
           {"ignore_loaders", &F::ignore_loaders, "not in these"},
           {"every", &F::every, "only in every n-th epoch"},
           {"epochs", &F::epochs, "only in these"},
           {"ignore_epochs", &F::ignore_epochs, "not in these"},
           {"loader_epochs", &F::loader_epochs, "only in these loaders, each in these epochs"},
           {"ignore_loader_epochs", &F::ignore_loader_epochs, "not in these epochs of a loader"}}) {
    fields.push_back(field.inside(&R::flow));
  }
  targets.callbacks.add<R>(
      "ControlFlowCallback", "Calls another callback in some passes only.", fields,
      [](const R& r) { return std::make_shared<ControlFlowCallback>(r.callback, r.flow); });
  using P = PeriodicLoaderCallbackOptions;
  add<PeriodicLoaderCallback, P>(
      targets, "PeriodicLoaderCallback", "Goes through a loader in every n-th epoch only.",
      {config::required("every", &P::every, "for each loader, which n; 0: never")});
}

}  // namespace

void add_callbacks(Targets& targets) {
  add_criterion(targets);
  add_graph(targets);
  add_changes(targets);
  add_averages(targets);
  add_gradients(targets);
  add_flow(targets);
  using E = EarlyStoppingCallbackOptions;
  add<EarlyStoppingCallback, E>(
      targets, "EarlyStoppingCallback", "Ends a run that no longer improves.",
      {{"patience", &E::patience, "epochs, or batches, in a row without improvement"},
       {"metric", &E::metric, "default: valid_loader's valid_metric"},
       {"minimize", &E::minimize, "whether smaller is better; default: the metric's own direction"},
       {"min_delta", &E::min_delta, "the smallest change that counts as an improvement"},
       {"per", &E::per, "compares epochs, or the batches of the metric's loader"}});
  using F = FreezeCallbackOptions;
  add<FreezeCallback, F>(
      targets, "FreezeCallback", "Does not train some parameters in some epochs.",
      {config::required("names", &F::names, "of the parameters, or patterns: \"encoder.*\""),
       {"from_epoch", &F::from_epoch, "the first epoch in which they are frozen"},
       {"epochs", &F::epochs, "for how many epochs; default: until the end of the run"},
       {"eval", &F::eval, "frozen modules, such as batch norm, are in evaluation mode"}});
  using L = LRFinderCallbackOptions;
  add<LRFinderCallback, L>(targets, "LRFinderCallback",
                           "Raises the learning rate step by step, and reports the best one.",
                           {{"first_lr", &L::first_lr, "to begin with"},
                            {"final_lr", &L::final_lr, "to end with"},
                            {"num_steps", &L::num_steps, "from first_lr to final_lr"},
                            {"scale", &L::scale, "of the steps between them"}});
  using C = CheckpointCallbackOptions;
  add<CheckpointCallback, C>(
      targets, "CheckpointCallback", "Saves the run: last and best.",
      {{"folder", &C::folder, "default: logdir/checkpoints"},
       {"metric", &C::metric, "decides what is best; default: valid_loader's valid_metric"},
       {"minimize", &C::minimize, "whether smaller is better; default: the metric's own direction"},
       {"min_delta", &C::min_delta, "best.pth changes only if the metric is better by more"},
       {"save_n_best", &C::save_n_best, "epochs kept; 0: only last.pth, and no best.pth"},
       {"keep_all", &C::keep_all, "keep the file of every save; save_n_best is not used then"},
       {"save_every_epochs", &C::save_every_epochs, "and after the last one; 0: only then"},
       {"save_every_batches", &C::save_every_batches,
        "also save last.pth inside epochs, after this many batches; 0: never"},
       {"save_every_steps", &C::save_every_steps, "the same, after this many updates of the model"},
       {"filename", &C::filename,
        "of files that are kept: \"model.{epoch:02d}-{valid_loss:.2f}\"; .pth is added"},
       {"mode", &C::mode,
        "full: all that is needed to resume; model: only the weights; none: save nothing"}});
  using S = SchedulerCallbackOptions;
  add<SchedulerCallback, S>(targets, "SchedulerCallback",
                            "Sets the metric that ReduceLROnPlateau observes.",
                            {{"metric", &S::metric, "default: valid_loader's valid_metric"},
                             {"metrics", &S::metrics, "of some schedulers, by their optimizers"}});
  using R = CheckRunCallbackOptions;
  add<CheckRunCallback, R>(targets, "CheckRunCallback", "A few batches of a few epochs.",
                           {{"num_batches", &R::num_batches, "of each loader"},
                            {"num_epochs", &R::num_epochs, "at most"}});
  using B = BatchOverfitCallbackOptions;
  add<BatchOverfitCallback, B>(
      targets, "BatchOverfitCallback", "Trains on a few batches again and again.",
      {{"batches", &B::batches,
        "for each loader, how many or which fraction of them; default: one"}});
  targets.callbacks.add("TimerCallback", "How long data, model and batch take, as metrics.",
                        [] { return std::make_shared<TimerCallback>(); });
  targets.callbacks.add("ProgressBarCallback", "A progress bar; verbose: true adds one.",
                        [] { return std::make_shared<ProgressBarCallback>(); });
}

}  // namespace lockstep::recipe

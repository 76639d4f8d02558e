#include "lockstep/train/loop.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <malloc.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/base/warn.h"
#include "lockstep/comm/local.h"
#include "lockstep/data/sharding.h"
#include "lockstep/log/console_logger.h"
#include "lockstep/log/csv_logger.h"
#include "lockstep/log/mlflow_logger.h"
#include "lockstep/log/tensorboard_logger.h"
#include "lockstep/process/environment.h"
#include "lockstep/process/interrupt.h"
#include "lockstep/state/hash.h"
#include "lockstep/train/batch_norm_pass.h"
#include "lockstep/train/combined_model.h"
#include "lockstep/train/dry_run.h"
#include "lockstep/train/failure.h"
#include "lockstep/train/first_weights.h"
#include "lockstep/train/interruption.h"
#include "lockstep/train/merge.h"
#include "lockstep/train/mixed_precision.h"
#include "lockstep/train/operator_profile.h"
#include "lockstep/train/report.h"
#include "lockstep/train/restore.h"
#include "lockstep/train/snapshot.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// "8 epochs, 2 workers, train: 60,000 samples, batch 64 = 2 shards x 32". It shows the global batch
// size, because batch_size is the size of one shard.
std::string first_line(const Plan& plan) {
  const auto count = [](std::int64_t number, const char* what) {
    return fmt::format("{} {}{}", with_thousands(number), what, number == 1 ? "" : "s");
  };
  std::string line =
      fmt::format("{}, {}", describe(plan.length), count(plan.engine->workers(), "worker"));
  if (plan.precision.is_mixed()) line += fmt::format(", {}", plan.precision.name());
  for (const auto& [name, loader] : plan.loaders) {
    if (!is_train_loader(name)) continue;
    const std::int64_t shards = plan.engine->shards();
    line += fmt::format(", {}: {}, batch {}", name,
                        count(data::epoch_size(loader, shards).samples, "sample"),
                        describe(data::batch_split(loader, shards)));
  }
  if (const auto& base = plan.options.lr_base_batch_size) {
    line += fmt::format(", lr x {:.4g} for steps of {} samples instead of {}", plan.lr_factor,
                        with_thousands(std::llround(plan.lr_factor * static_cast<double>(*base))),
                        with_thousands(*base));
  }
  return line;
}

// A loss that compares samples sees those of one shard.
void warn_of_mixed_samples(const Plan& plan) {
  const std::int64_t shards = plan.step.shards;
  if (shards == 1 || plan.optimizers.empty()) return;
  for (const auto& [name, criterion] : plan.criterions) {
    if (!criterion.mixes_samples()) continue;
    warn(fmt::format(
        "criterion {}: it compares the samples of a batch with each other, and each of the {} "
        "shards has its own samples and its own loss; the step is the mean of these. Results "
        "depend on the number of shards. With one shard it sees the whole batch",
        criterion.describe(), shards));
  }
}

// The user's hyper-parameters and those of the run; the user's have priority.
HParams complete_hparams(const Plan& plan, const State& state, const Named<double>& lrs) {
  HParams hparams = state.hparams;
  hparams.try_emplace("seed", static_cast<std::int64_t>(state.seed));
  hparams.try_emplace("num_epochs", plan.options.num_epochs);
  if (const auto& steps = plan.options.num_steps) hparams.try_emplace("num_steps", *steps);
  if (plan.length.goes_on) hparams.try_emplace("steps_per_epoch", plan.length.steps_per_epoch);
  for (const auto& [name, optimizer] : state.optimizers) {
    const std::string suffix = state.optimizers.size() > 1 ? "/" + name : "";
    hparams.try_emplace("optimizer" + suffix, optimizer->name());
    hparams.try_emplace("lr" + suffix, lrs[name]);
  }
  if (plan.precision.is_mixed()) {
    hparams.try_emplace("precision", std::string(plan.precision.name()));
  }
  if (plan.options.lr_base_batch_size) hparams.try_emplace("lr_factor", plan.lr_factor);
  const std::int64_t shards = plan.engine->shards();
  hparams.try_emplace("shards", shards);
  for (const auto& [name, loader] : plan.loaders) {
    const data::BatchSplit split = data::batch_split(loader, shards);
    hparams.try_emplace(name + "_batch_size", split.largest());
    // That of the first train loader, from which updates are made.
    if (is_train_loader(name)) hparams.try_emplace("global_batch_size", split.global);
  }
  return hparams;
}

RunEnd::Status end_status(const std::exception_ptr& exception) {
  if (!exception) return RunEnd::Status::kFinished;
  try {
    std::rethrow_exception(exception);
  } catch (const Interrupted&) {
    return RunEnd::Status::kInterrupted;
  } catch (...) {
    return RunEnd::Status::kFailed;
  }
}

bool uses_gradients(const std::vector<CallbackPtr>& callbacks) {
  return std::ranges::any_of(callbacks,
                             [](const CallbackPtr& item) { return item->traits().uses_gradients; });
}

// Whether a callback of any rank reads gradients. Callbacks that only rank 0 has count, too,
// because all ranks must send the same messages at the same time.
bool any_rank_uses_gradients(const std::vector<CallbackPtr>& callbacks, comm::Communicator& comm) {
  const auto votes = comm.vote(uses_gradients(callbacks) ? 1 : 0);
  return std::ranges::any_of(votes, [](std::uint64_t vote) { return vote != 0; });
}

// While it exists, what callbacks log belongs to the start of the run, an epoch or a pass. Starts
// have increasing numbers. A restart inside an epoch calls their hooks again.
class StartLogs {
 public:
  StartLogs(RunMemory* memory, EpochJournal& journal, std::int64_t start)
      : memory_(memory), journal_(journal) {
    if (memory_ != nullptr) memory_->set_log_start(start);
    journal_.set_start(start);
  }
  ~StartLogs() {
    if (memory_ != nullptr) memory_->set_log_stream(0);
    journal_.set_start(std::nullopt);
  }
  StartLogs(const StartLogs&) = delete;
  StartLogs& operator=(const StartLogs&) = delete;

 private:
  RunMemory* memory_;
  EpochJournal& journal_;
};

// Whether the other ranks are copies of rank 0 of the first attempt. They need no comparison, and
// rank 0's objects may have changed since then: an optimizer of torch has another learning rate,
// for example. The point gives all ranks the same values.
bool are_copies(const Plan& plan) {
  return plan.memory != nullptr && !plan.memory->is_launched();
}

// The plan of this rank, after checking that all ranks have the same one. Callbacks of other ranks
// are removed. Only rank 0 writes, so what writes or shows something is removed from the plans of
// the other ranks.
Plan plan_for(Plan plan, comm::Communicator& comm) {
  // The check calls a user's sampler for its order, so it is made only if there are ranks to
  // compare.
  if (comm.size() > 1 && !are_copies(plan)) check_agreement(agreement_of(plan), comm);
  const Ranks elsewhere = comm.is_primary() ? Ranks::kOthers : Ranks::kPrimary;
  std::erase_if(plan.callbacks,
                [&](const CallbackPtr& item) { return item->traits().ranks == elsewhere; });
  if (comm.is_primary()) return plan;
  plan.options.console = false;
  plan.options.loggers.clear();
  return plan;
}

std::vector<torch::Tensor> tensors_in(const NamedTensors& named) {
  std::vector<torch::Tensor> tensors;
  for (const auto& [name, tensor] : named) tensors.push_back(tensor);
  return tensors;
}

ReplicaTensors tensors_of(const Plan& plan) {
  ReplicaTensors tensors{.buffers = plan.model.buffers()};
  for (const auto& optimizer : plan.optimizers) {
    tensors.trained.push_back({.parameters = parameters_of(plan, optimizer),
                               .own_backward = phase_of(plan, optimizer).optimizers.size() == 1});
  }
  for (const auto& name : untrained_networks(plan)) {
    for (auto& item : in_network(name, plan.models[name].parameters())) {
      tensors.untrained.push_back(std::move(item));
    }
  }
  return tensors;
}

// " of 'generator'" if there are several optimizers.
std::string of_which(const Plan& plan, std::size_t i) {
  return plan.optimizers.size() > 1 ? fmt::format(" of '{}'", plan.optimizers[i].name) : "";
}

// Gives the optimizer the learning rates and the momenta that it had in the first attempt.
void begin_anew(RunMemory& memory, const std::string& name, optim::Optimizer& optimizer) {
  const optim::OptimizerPace now = optimizer.pace();
  const optim::OptimizerPace& first = memory.first_pace(name, now);
  if (first != now) optimizer.set_pace(first);
}

bool is_stepped(const PlannedOptimizer& optimizer, const Phase& phase) {
  return std::ranges::find(phase.optimizers, optimizer.name) != phase.optimizers.end();
}

// The parameters that other phases train.
std::vector<torch::Tensor> others_of(const Phase& phase, const Plan& plan) {
  std::vector<torch::Tensor> others;
  for (const auto& optimizer : plan.optimizers) {
    if (is_stepped(optimizer, phase)) continue;
    for (auto& tensor : tensors_in(parameters_of(plan, optimizer))) {
      others.push_back(std::move(tensor));
    }
  }
  return others;
}

}  // namespace

Loop::TrainingParts::TrainingParts(const Plan& plan, comm::Communicator& comm, Profiler& profiler,
                                   DeviceCopies* copies)
    : unseen_gradients(!any_rank_uses_gradients(plan.callbacks, comm)),
      replicas(tensors_of(plan), comm,
               {.shards = static_cast<int>(plan.step.shards),
                .share_memory = plan.engine->shares_updates(),
                .overlap = !plan.step.sync_bn && unseen_gradients,
                .one_batch_per_update = plan.step.accumulation_steps == 1,
                .wire = plan.step.wire,
                .profiler = &profiler}) {
  for (std::size_t i = 0; i < plan.optimizers.size(); ++i) {
    optimizers.push_back(make_optimizer(plan, plan.optimizers[i], replicas[i].parameters()));
    // A scheduler may begin with the optimizer's learning rate.
    if (are_copies(plan)) begin_anew(*plan.memory, plan.optimizers[i].name, *optimizers[i]);
    initial_lrs.set(plan.optimizers[i].name, optimizers[i]->lr());
  }
  const bool compares = comm.size() > 1 && !are_copies(plan);
  if (compares) check_agreement(made_optimizers(plan), comm);
  for (std::size_t i = 0; i < plan.optimizers.size(); ++i) {
    const PlannedOptimizer& planned = plan.optimizers[i];
    schedulers.emplace_back();
    if (!planned.scheduler) continue;
    schedulers[i] = planned.scheduler.make(*optimizers[i], schedule_of(plan, planned));
  }
  if (compares) check_agreement(made_schedulers(plan), comm);
  if (plan.scaler) scaler = std::make_unique<optim::GradScaler>(*plan.scaler);
  for (const Phase& phase : plan.phases) {
    std::vector<TrainedReplica> trained;
    for (std::size_t i = 0; i < plan.optimizers.size(); ++i) {
      if (is_stepped(plan.optimizers[i], phase)) {
        trained.push_back({replicas[i], *optimizers[i]});
      }
    }
    steps.emplace_back(StepParts{.trained = std::move(trained),
                                 .buffers = replicas.buffers(),
                                 .engine = *plan.engine,
                                 .others = others_of(phase, plan),
                                 .scaler = scaler.get(),
                                 .copies = copies},
                       plan.step);
  }
}

Agreement Loop::TrainingParts::made_optimizers(const Plan& plan) const {
  Agreement made;
  for (std::size_t i = 0; i < optimizers.size(); ++i) {
    made.emplace_back("optimizer" + of_which(plan, i), optimizers[i]->describe());
  }
  return made;
}

Agreement Loop::TrainingParts::made_schedulers(const Plan& plan) const {
  Agreement made;
  for (std::size_t i = 0; i < schedulers.size(); ++i) {
    made.emplace_back("scheduler" + of_which(plan, i),
                      schedulers[i] ? schedulers[i]->describe() : "none");
  }
  return made;
}

Loop::UntrainedScope::UntrainedScope(const Plan& plan) {
  std::vector<torch::Tensor> parameters;
  for (const auto& name : untrained_networks(plan)) {
    const Model& network = plan.models[name];
    modes_.emplace_back(network, network.is_training());
    network.train(false);
    for (auto& tensor : tensors_in(network.parameters())) parameters.push_back(std::move(tensor));
  }
  without_gradients_ = std::make_unique<WithoutGradients>(parameters);
}

Loop::UntrainedScope::~UntrainedScope() {
  for (const auto& [network, was_training] : modes_) network.train(was_training);
}

std::vector<Model> Loop::UntrainedScope::networks() const {
  std::vector<Model> networks;
  for (const auto& [network, was_training] : modes_) networks.push_back(network);
  return networks;
}

Loop::Loop(Plan plan, comm::Communicator& communicator)
    : plan_(plan_for(std::move(plan), communicator)),
      memory_(communicator.is_primary() ? plan_.memory.get() : nullptr),
      shares_points_(plan_.memory != nullptr && plan_.memory->has_copies()),
      state_(state_of(plan_)),
      comm_(communicator),
      untrained_(plan_),
      copies_(make_device_copies(plan_.engine->device(), [this] { comm_.check(); })),
      profiler_(plan_.options.profile),
      totals_(memory_ != nullptr ? memory_->totals : own_totals_) {
  const TrainOptions& options = plan_.options;
  if (memory_ != nullptr) memory_->begin_attempt(plan_.model);
  plan_.model.to(plan_.engine->device());
  for (const auto& [name, criterion] : plan_.criterions) criterion.to(plan_.engine->device());
  if (!plan_.optimizers.empty()) {
    training_ = std::make_unique<TrainingParts>(plan_, comm_, profiler_, copies_.get());
  }
  state_.comm = &comm_;
  // Rank 0 logs, and the others send it their part of each batch.
  const bool logs_batches = comm_.vote(options.log_batches ? 1 : 0).front() == 1;
  pass_ = std::make_unique<LoaderPass>(
      state_, plan_.callbacks, plan_.handle_batch,
      training_ ? std::span<TrainStep>(training_->steps) : std::span<TrainStep>(), profiler_,
      PassSettings{.loss_key = plan_.loss_key,
                   .terminate_on_nan = options.terminate_on_nan,
                   .log_batches = logs_batches,
                   .shards = plan_.step.shards,
                   .unseen_gradients = training_ && training_->unseen_gradients,
                   .phases = plan_.phases,
                   .untrained = untrained_.networks(),
                   .replaces_workers = are_copies(plan_),
                   .after_batch = memory_ != nullptr ? [this] { return after_batch(); }
                                                     : std::function<bool()>(),
                   .take_point = [this] { take_point(); },
                   .begin =
                       [this](const std::function<void()>& hooks) {
                         const auto loader = static_cast<std::int64_t>(loader_index_);
                         const std::int64_t epoch = epoch_start(state_.progress.epoch);
                         const StartLogs logs(memory_, *journal_, epoch + 1 + loader);
                         hooks();
                       },
                   .copies = copies_.get()});
  if (!training_) return;
  set_optimizers();
  state_.change_model = [this](const std::function<void()>& change) {
    training_->replicas.change(change);
  };
  averaged_ = std::make_unique<AveragedWeights>(state_);
  state_.averaged = averaged_.get();
  checkpointer_ =
      std::make_unique<Checkpointer>(CheckpointerParts{.state = state_,
                                                       .callbacks = plan_.callbacks,
                                                       .pass = *pass_,
                                                       .replicas = training_->replicas,
                                                       .optimizers = training_->optimizers,
                                                       .phases = plan_.phases,
                                                       .options = options,
                                                       .initial_lrs = training_->initial_lrs,
                                                       .goes_on_from = plan_.goes_on_from.get(),
                                                       .memory = memory_,
                                                       .journal = *journal_});
  state_.checkpointer = checkpointer_.get();
}

void Loop::set_optimizers() {
  for (std::size_t i = 0; i < plan_.optimizers.size(); ++i) {
    const std::string& name = plan_.optimizers[i].name;
    state_.optimizers.set(name, training_->optimizers[i].get());
    optim::Scheduler* const scheduler = training_->schedulers[i].get();
    if (scheduler == nullptr) continue;
    state_.schedulers.set(name, scheduler);
    if (state_.scheduler == nullptr) state_.scheduler = scheduler;
  }
  state_.optimizer = training_->optimizers.front().get();
  state_.scaler = training_->scaler.get();
}

Loop::~Loop() = default;

TrainResult Loop::run() {
  // A signal ends an evaluation at once: it has nothing to save.
  std::optional<process::InterruptGuard> interrupts;
  if (training_) interrupts.emplace();
  // Outside of batches the time limit does not apply to a rank, because loading, saving and
  // callbacks may take long and the other ranks take no part in them.
  const comm::AloneScope alone(comm_);
  std::exception_ptr late;
  try {
    begin();
    run_measured();
    if (checkpointer_) checkpointer_->save_last_epoch();
    if (checkpointer_) checkpointer_->finish_writing();
    finish_point();
    keep_run();
    if (averaged_) averaged_->use();  // for on_run_end, and for the result
    // Only now: until here the run may go back to a point that lists these files.
    if (checkpointer_) checkpointer_->need_files(false);
  } catch (const Interrupted&) {
    fail();
    if (comm_.is_primary()) report_interruption(state_, plan_.options);
    throw;
  } catch (const std::exception& error) {
    // This is done first, so that no other rank waits for this one.
    comm_.abort(message_of(error), process::failure_kind(error));
    if (is_restarted(error)) {  // the run has not ended
      abandon();
      throw;
    }
    fail();
    rethrow_from(failed_in());
  } catch (...) {
    const Error unknown("threw something that is no exception");
    comm_.abort(unknown.what());
    if (is_restarted(unknown)) {
      abandon();
      throw;
    }
    fail();
    throw;
  }
  // From now on no other attempt is made, because on_run_end is called once.
  if (memory_ != nullptr) memory_->end();
  try {
    notify_end(plan_.callbacks, &Callback::on_run_end, state_);
  } catch (...) {
    late = std::current_exception();  // the summary of what was trained is still written
  }
  TrainResult result = finish(late);
  if (late) std::rethrow_exception(late);
  return result;
}

// Collective calls after on_run_end. Everything is trained, and rank 0 has all results. So a run
// that may be restarted does not need a rank that is lost now. Returns whether the call succeeded.
bool Loop::finish_together(const std::function<void()>& call) {
  const bool needs_others = memory_ == nullptr || memory_->is_launched();
  try {
    call();
    return true;
  } catch (const WorkerError&) {
    if (needs_others) throw;
  } catch (const CommError&) {
    if (needs_others) throw;
  }
  return false;
}

// Before another attempt follows. A file that is being written may take longer than the time limit,
// so this rank says that it is busy.
void Loop::abandon() noexcept {
  comm_.set_alone(true);
  checkpointer_.reset();
  if (memory_ == nullptr || !begun_) return;
  try {
    memory_->keep_progress(state_);
  } catch (const std::exception& error) {
    warn(message_of(error));  // only on_exception would miss it
  }
}

// A launched program that is started again also repeats calls of train() that were finished.
void Loop::finish_point() {
  if (!training_ || plan_.memory == nullptr || !plan_.memory->is_launched()) return;
  state_.can_snapshot = true;
  take_point();
  state_.can_snapshot = false;
  if (memory_ != nullptr) memory_->finish();
  if (shares_points_) plan_.memory->share_point(comm_);
}

void Loop::begin() {
  learn_of_restart();
  if (comm_.is_primary()) warn_of_slow_precision(plan_.precision, plan_.engine->device());
  for (const auto& callback : plan_.callbacks) callback->check(state_);
  // Every rank tries its own data. This is not done before the workers are forked, because a data
  // set may open its files at the first sample, and processes must not share them.
  if (plan_.options.dry_run && state_.restarts == 0) dry_run(plan_);
  if (training_) begin_training();
  begun_ = true;
  if (memory_ != nullptr) memory_->begin_callbacks();
  seed_hook(DrawHook::kRunStart, {.seed = state_.seed});
  {
    const StartLogs logs(memory_, *journal_, 0);
    notify_all(plan_.callbacks, &Callback::on_run_start, state_);
  }
  // A signal that came between two attempts must not lose what was trained: between epochs the run
  // can be saved now, inside an epoch after its next batch.
  const bool is_restart = state_.restarts > 0;
  state_.can_snapshot = training_ != nullptr && is_restart && !state_.inside_epoch;
  if (!is_restart || !state_.inside_epoch) agree_to_stop();
  state_.can_snapshot = training_ != nullptr && !state_.inside_epoch;
  const bool needs_point = memory_ != nullptr && !memory_->has_own_point();
  // A process that goes on from the next point does not log again what on_run_start has logged.
  if (needs_point && memory_->is_launched()) {
    for (const auto& logger : state_.loggers) logger->flush();
  }
  take_point_if(needs_point && state_.can_snapshot);
  state_.can_snapshot = false;
}

// Rank 0 knows whether the run was restarted. The other ranks are new processes.
void Loop::learn_of_restart() {
  if (plan_.memory == nullptr) return;
  if (plan_.memory->is_launched()) plan_.memory->take_over(comm_);
  const std::int64_t restarts = memory_ != nullptr ? memory_->restarts() : 0;
  const auto votes = comm_.vote(static_cast<std::uint64_t>(restarts));
  state_.restarts = static_cast<int>(votes.front());
}

void Loop::begin_training() {
  if (!has_begun_before()) {
    say(plan_.options, first_line(plan_));
    if (comm_.is_primary()) warn_of_mixed_samples(plan_);
  }
  take_weights();
  take_parts();
  const bool continued = resume() || has_begun_before();
  state_.progress.num_epochs = plan_.length.last_epoch(state_);
  if (comm_.is_primary()) prepare_logging(continued);
  comm_.barrier();  // after a resume, all ranks may write to the same memory of the parameters
}

// Whether an earlier attempt of this run began to write to its folder and its console.
bool Loop::has_begun_before() const {
  return memory_ != nullptr && memory_->has_begun_logs();
}

// The place of the exception that ended the run; empty if no epoch has begun.
std::string Loop::failed_in() const {
  if (!pass_->failed_in().empty() || !training_) return pass_->failed_in();
  const bool in_epoch = state_.progress.epoch > totals_.epochs_before;
  return in_epoch ? fmt::format("epoch {}", state_.progress.epoch) : "";
}

void Loop::fail() {
  state_.exception = std::current_exception();
  comm_.set_alone(true);  // the exception may come from inside a pass
  try {
    if (checkpointer_) checkpointer_->finish_writing();
  } catch (const std::exception& error) {
    warn(fmt::format("while the run was ending: {}", message_of(error)));
  } catch (...) {
    warn("while the run was ending, a callback threw something that is no exception");
  }
  // An earlier attempt may have called on_run_start.
  const bool was_begun = memory_ != nullptr && memory_->has_begun_callbacks();
  if (was_begun && !begun_) {
    const std::exception_ptr exception = state_.exception;
    static_cast<ProgressState&>(state_) = memory_->kept_progress();
    state_.exception = exception;
  }
  if (memory_ != nullptr) memory_->end();
  if (begun_ || was_begun) notify_failure(plan_.callbacks, state_);
  try {
    if (checkpointer_) checkpointer_->need_files(false);
  } catch (const std::exception& error) {
    warn(fmt::format("while the run was ending: {}", message_of(error)));
  }
  close_loggers({.status = end_status(state_.exception)});
}

void end_lost_run(const Plan& plan, RunMemory& memory) noexcept {
  if (!memory.has_begun_callbacks() || memory.is_launched()) return;
  memory.end();
  comm::Local alone;
  State state = state_of(plan);
  static_cast<ProgressState&>(state) = memory.kept_progress();
  state.exception = std::current_exception();
  state.comm = &alone;
  state.restarts = memory.restarts();
  state.loggers.assign(memory.loggers().begin(), memory.loggers().end());
  std::vector<CallbackPtr> callbacks = plan.callbacks;
  std::erase_if(callbacks,
                [](const CallbackPtr& item) { return item->traits().ranks == Ranks::kOthers; });
  notify_failure(callbacks, state);
  const RunEnd end{.status = end_status(state.exception)};
  memory.close_loggers(&end);
}

namespace {

void say_loaded(const TrainOptions& options, const PlannedWeights& file,
                const FirstWeights& first) {
  const std::string into = file.network.empty() ? "" : fmt::format(" into '{}'", file.network);
  say(options, fmt::format("=> Loading weights {}{}: {}", file.weights.path().string(), into,
                           first.summary()));
  const std::string rest = first.rest();
  if (!rest.empty()) say(options, "   " + rest);
}

}  // namespace

void Loop::take_weights() {
  const TrainOptions& options = plan_.options;
  const std::vector<PlannedWeights> files = planned_weights(state_.model, options);
  if (files.empty() || options.resume) return;  // a resumed run loaded them when it began
  // Only rank 0 reads, because the other ranks may not have access to its disk.
  const bool is_replaced = memory_ != nullptr && memory_->point() != nullptr;
  if (comm_.is_primary() && !is_replaced) {
    for (const PlannedWeights& file : files) {
      const FirstWeights first = load_weights(file.model, file.weights);
      if (!has_begun_before()) say_loaded(options, file, first);
    }
  }
  training_->replicas.send(training_->optimizers);
}

void Loop::take_parts() {
  const RestoreOptions& restore = plan_.options.restore;
  // A run that continues another one has that one's parts.
  if (!restore || plan_.options.resume || plan_.goes_on_from) return;
  const bool is_replaced = memory_ != nullptr && memory_->point() != nullptr;
  StateDict parts;
  if (comm_.is_primary() && !is_replaced) parts = read_parts(restore);
  StateDict small = broadcast(without_tensors(parts, state_.optimizers), comm_);
  try {
    restore_parts(comm_.is_primary() ? parts : small, state_);
  } catch (const CheckpointError& error) {
    throw CheckpointError("restore: {}", error.what());
  }
  training_->replicas.send(training_->optimizers);
  if (comm_.is_primary() && !has_begun_before()) {
    say(plan_.options, fmt::format("=> Restoring parts: {}", restore.describe()));
  }
}

// Returns whether the run continues in the files of the run that it resumes.
bool Loop::resume() {
  const auto point = checkpointer_->resume();
  state_.continues = point.has_value();
  if (!point) return false;
  ::malloc_trim(0);  // gives the memory that reading the file needed back to the system
  loader_index_ = point->loader_index;
  first_batch_ = point->first_batch;
  has_logged_starts_ = memory_ != nullptr && memory_->has_own_point();
  if (comm_.is_primary() && state_.inside_epoch) take_records(std::move(point->records));
  if (point->is_restart) return true;
  totals_.epochs_before = point->finished_epochs;
  totals_.steps_before = state_.progress.update_step;
  if (plan_.goes_on_from) {
    say(plan_.options, fmt::format("=> Going on after epoch {}", state_.progress.epoch));
    return true;
  }
  say(plan_.options,
      fmt::format("=> Loading checkpoint {} (epoch {}{})", point->path.string(),
                  state_.progress.epoch,
                  state_.inside_epoch ? fmt::format(", and {} batches of '{}'", first_batch_,
                                                    state_.loaders.names()[loader_index_])
                                      : ""));
  return point->in_own_folder;
}

// Decides what is logged again: `records` were logged in the current epoch before the snapshot.
void Loop::take_records(std::optional<EpochJournal::Entries> records) {
  if (records) {
    records_ = std::move(*records);
    // Loggers keep the rows of finished epochs. The file of an epoch's checkpoint may be reported
    // in the next one, and the hooks at the start of a resumed run belong to the epoch before.
    std::erase_if(records_, [&](const EpochJournal::Entry& entry) {
      return entry.record.progress.epoch <= state_.progress.epoch;
    });
    // The hooks at the start of the epoch and of the pass are called again. After a restart, what
    // they log is left out. A resumed run logs it anew.
    if (has_logged_starts_) return;
    const std::int64_t epoch = epoch_start(state_.progress.epoch + 1);
    std::erase_if(records_, [&](const EpochJournal::Entry& entry) {
      return entry.start == epoch || entry.start == last_start();
    });
    return;
  }
  // A checkpoint of an older version has only the metrics of the finished loaders.
  Progress progress = state_.progress;
  progress.epoch += 1;
  for (const auto& [loader, metrics] : state_.epoch_metrics) {
    records_.push_back({.record = {Scope::kLoader, loader, progress, metrics}});
  }
}

void Loop::prepare_logging(bool continued) {
  if (memory_ != nullptr && memory_->has_loggers()) {
    state_.loggers.assign(memory_->loggers().begin(), memory_->loggers().end());
    memory_->rewind_loggers();
  } else {
    open_loggers(continued);
    if (memory_ != nullptr) memory_->note_log_positions();
  }
  journal_->restore(std::move(records_), has_logged_starts_ ? last_start() : -1);
  // In front, because a callback may use the last logger, which is the user's.
  if (!state_.loggers.empty()) state_.loggers.insert(state_.loggers.begin(), journal_);
}

void Loop::open_loggers(bool continued) {
  const TrainOptions& options = plan_.options;
  const bool has_shown = has_begun_before();
  if (options.console) {
    ConsoleLoggerOptions shown{.first = {plan_.loss_key}};
    for (const Phase& phase : plan_.phases) {
      if (!phase.name.empty()) shown.first.push_back(plan_.loss_key + "/" + phase.name);
    }
    if (const auto& key = state_.selection.key) shown.first.push_back(key->metric);
    state_.loggers.push_back(std::make_shared<ConsoleLogger>(Console::standard(), shown));
  }
  if (options.logdir) {
    LogDirectory& logdir = memory_ != nullptr ? memory_->logdir : logdir_;
    // An attempt that failed before its loggers were open still holds the folder's lock.
    if (!logdir.lock) logdir = prepare_logdir(*options.logdir, {.resume = continued});
    if (logdir.moved_to) {
      say(options, fmt::format("{} held an earlier run: moved to {}", options.logdir->string(),
                               logdir.moved_to->string()));
    }
    state_.loggers.push_back(std::make_shared<CsvLogger>(
        *options.logdir, CsvLoggerOptions{.log_batches = options.log_batches}));
    state_.loggers.push_back(std::make_shared<TensorBoardLogger>(
        *options.logdir, TensorBoardOptions{.log_batches = options.log_batches}));
  }
  if (memory_ != nullptr) memory_->begin_logs();  // the folder is this run's now
  if (auto mlflow = mlflow_of_environment(options.loggers, process::current_environment())) {
    state_.loggers.push_back(std::move(mlflow));
  }
  for (const auto& logger : options.loggers) state_.loggers.push_back(logger);
  // A resumed run may have other options than the one before, whose later rows are in the files.
  const bool has_same_rows = has_logged_starts_ && !options.resume && !plan_.goes_on_from;
  RunStart start{.progress = state_.progress,
                 .resumed = continued,
                 .restarted = has_same_rows,
                 .hparams = complete_hparams(plan_, state_, checkpointer_->initial_lrs()),
                 .history = continued ? state_.history : std::map<std::int64_t, EpochMetrics>(),
                 .logdir = options.logdir,
                 .documents = options.documents};
  // The process before was lost when it had only begun: what it logged is logged again.
  if (has_shown && memory_->point() == nullptr) {
    start.progress.epoch = start.progress.batch_step = start.progress.sample_step =
        start.progress.update_step = -1;
  }
  for (const auto& logger : state_.loggers) logger->start(start);
  // Kept only now: loggers that could not be started are made anew in the next attempt.
  if (memory_ != nullptr) {
    std::vector<std::shared_ptr<OnceLogger>> once;
    for (const auto& logger : state_.loggers) once.push_back(std::make_shared<OnceLogger>(logger));
    // The hooks at starts are called again. What they log is in the files already.
    if (has_logged_starts_) {
      for (const auto& logger : once) logger->skip_starts(last_start());
    }
    memory_->set_loggers(std::move(once));
    state_.loggers.assign(memory_->loggers().begin(), memory_->loggers().end());
  }
  // The rows after the last whole epoch are dropped from the logs of the earlier run, so what it
  // logged in the current epoch is logged again. The console does not show it again if it is the
  // same run, in a process that replaces the one before.
  const std::size_t first = options.console && has_shown ? 1 : 0;
  for (auto& entry : records_) {
    entry.record.progress.num_epochs = state_.progress.num_epochs;
    for (std::size_t i = first; i < state_.loggers.size(); ++i) {
      state_.loggers[i]->log_metrics(entry.record);
    }
  }
}

void Loop::run_measured() {
  std::optional<OperatorProfile> profile;
  if (plan_.options.profile_operators && comm_.is_primary()) profile.emplace();
  run_epochs();
  if (profile) operators_ = profile->table();
}

void Loop::run_epochs() {
  if (state_.progress.epoch >= state_.progress.num_epochs && state_.restarts == 0) {
    const auto& steps = plan_.length.num_steps;
    warn(fmt::format(
        "resume: the checkpoint has finished {} {} and {} is {}: there is nothing "
        "left to train",
        steps ? state_.progress.update_step : state_.progress.epoch, steps ? "steps" : "epochs",
        steps ? "num_steps" : "num_epochs", steps.value_or(state_.progress.num_epochs)));
  }
  // An evaluation is one epoch, which a request of a callback cannot skip.
  const auto is_stopped = [this] {
    // A snapshot inside an epoch may have a request, which ends the run after that epoch.
    return training_ != nullptr && state_.stop_reason.has_value() && !state_.inside_epoch;
  };
  while (state_.progress.epoch < state_.progress.num_epochs && !is_stopped()) {
    state_.progress.epoch += 1;
    run_epoch();
  }
  warn_of_missing_steps();
}

// The number of epochs is known from the beginning. If a callback left out a train pass or ended
// one early, the run has fewer steps than the user asked for.
void Loop::warn_of_missing_steps() const {
  const auto& steps = plan_.length.num_steps;
  const std::int64_t made = state_.progress.update_step;
  if (!steps || made >= *steps || state_.stop_reason || plan_.options.check) return;
  if (!comm_.is_primary()) return;
  warn(fmt::format(
      "num_steps: the run ended after {} of {} steps, because a callback left out the train loader "
      "in an epoch or ended its pass early; to train the missing steps, call continue_training, or "
      "resume, with the same num_steps",
      made, *steps));
}

// Before on_run_end: a callback may forget its state there. Every rank knows whether the run can go
// on. Otherwise continue_training() would fail on rank 0, and the other ranks would wait for it.
void Loop::keep_run() {
  if (!training_ || !plan_.options.keep_run) return;
  kept_run_ = std::make_shared<KeptRun>();
  if (comm_.is_primary()) take_snapshot(*kept_run_);
  kept_run_->unavailable = comm_.broadcast_bytes(kept_run_->unavailable);
}

void Loop::take_snapshot(KeptRun& kept) {
  state_.can_snapshot = true;
  try {
    for (const auto& optimizer : training_->optimizers) optimizer->check_state();
    kept.snapshot = checkpointer_->snapshot();
    kept.best_weights = checkpointer_->best_weights();
  } catch (const std::exception& error) {
    kept.unavailable = message_of(error);  // it matters only if the run is to go on
  }
  state_.can_snapshot = false;
}

// The number of the epoch's start for StartLogs. Those of its passes follow it. The run's is 0.
std::int64_t Loop::epoch_start(std::int64_t epoch) const {
  return epoch * static_cast<std::int64_t>(state_.loaders.size() + 1);
}

// After a resume: the last start whose hooks were called before the snapshot.
std::int64_t Loop::last_start() const {
  const std::int64_t next_epoch = epoch_start(state_.progress.epoch + 1);
  return state_.inside_epoch ? next_epoch + 1 + static_cast<std::int64_t>(loader_index_)
                             : next_epoch - 1;
}

void Loop::run_epoch() {
  const bool resumed_inside = std::exchange(state_.inside_epoch, true);
  if (!resumed_inside) {
    state_.epoch_metrics.clear();
    journal_->begin_epoch();
    state_.steps_before_epoch = state_.progress.update_step;
    state_.skipped_loaders.clear();  // a snapshot inside an epoch has them
    loader_index_ = 0;
    first_batch_ = 0;
  }
  state_.continues = resumed_inside;
  seed_hook(DrawHook::kEpochStart, {.seed = state_.seed, .epoch = state_.progress.epoch});
  {
    const StartLogs logs(memory_, *journal_, epoch_start(state_.progress.epoch));
    notify_all(plan_.callbacks, &Callback::on_epoch_start, state_);
  }
  const auto names = state_.loaders.names();
  state_.idle_loaders.clear();
  for (const auto& name : names) {
    const bool has_begun =
        (first_batch_ > 0 && name == names[loader_index_]) || state_.epoch_metrics.contains(name);
    if (!has_begun && !plan_.length.has_pass(name, state_.progress)) {
      state_.idle_loaders.insert(name);
    }
  }
  for (; loader_index_ < names.size(); ++loader_index_) {
    // An evaluation has one loader, which cannot be left out. A pass that has begun is finished.
    const std::string& name = names[loader_index_];
    if (training_ && first_batch_ == 0 && state_.is_left_out(name)) continue;
    run_pass(name);
  }
  finish_epoch();
}

void Loop::run_pass(const std::string& loader) {
  const std::int64_t first_batch = std::exchange(first_batch_, 0);
  const auto start = Clock::now();
  const std::int64_t samples_before = state_.progress.sample_step;
  comm_.set_alone(false);
  if (averaged_ && !is_train_loader(loader)) averaged_->use();
  pass_->run({.loader = loader,
              .index = static_cast<std::int64_t>(loader_index_),
              .window = plan_.length.window(loader, state_, first_batch)});
  if (averaged_) averaged_->release();
  if (state_.is_train) {
    totals_.train_seconds += seconds_since(start);
    totals_.train_samples += state_.progress.sample_step - samples_before;
  }
  const bool was_last = averaged_ && is_last_train_loader(state_, loader);
  if (was_last && averaged_->needs_batch_norm()) remake_batch_norm();
  comm_.set_alone(true);
  finish_loader();
}

// Collective, after the last train loader of an epoch: the average gets statistics of batch norm of
// its own, over the train data of this epoch.
void Loop::remake_batch_norm() {
  BatchNormPass pass{.state = state_,
                     .callbacks = plan_.callbacks,
                     .handle_batch = plan_.handle_batch,
                     .phases = plan_.phases,
                     .buffers = averaged_->buffers(),
                     .untrained = untrained_.networks(),
                     .modes = pass_->train_modes(),
                     .shards = plan_.step.shards};
  const auto names = state_.loaders.names();
  for (std::size_t i = 0; i <= loader_index_; ++i) {
    if (!is_train_loader(names[i])) continue;
    if (i != loader_index_ && state_.is_left_out(names[i])) continue;
    // Of the loader that was just finished, the batches that it had.
    const bool is_current = i == loader_index_;
    const std::int64_t done = is_current ? state_.loader_batch : 0;
    data::WindowOptions window = plan_.length.window(names[i], state_, done);
    window.first_batch = 0;
    if (is_current) window.batches = done;
    pass.loaders.push_back(
        {.name = names[i], .index = static_cast<std::int64_t>(i), .window = window});
  }
  averaged_->use();
  averaged_->note_batch_norm(lockstep::remake_batch_norm(pass));
  averaged_->release();
}

void Loop::finish_loader() {
  state_.epoch_metrics[state_.loader] = state_.loader_metrics;
  const Record record{Scope::kLoader, state_.loader, state_.progress, state_.loader_metrics};
  for (const auto& logger : state_.loggers) logger->log_metrics(record);
  // Checked here, because this is the earliest moment at which a wrong name can be found.
  const auto& key = state_.selection.key;
  if (key && key->loader == state_.loader) metric_value(state_, *key, "valid_metric");
}

// The epoch's metrics are complete: notes them, and whether it is the best epoch.
void Loop::record_epoch() {
  const Metrics epoch = hyper_metrics(state_);
  state_.epoch_metrics[kEpochKey] = epoch;
  state_.history[state_.progress.epoch] = state_.epoch_metrics;
  checkpointer_->note_epoch();
  const Record record{Scope::kEpoch, kEpochKey, state_.progress, epoch};
  for (const auto& logger : state_.loggers) logger->log_metrics(record);
}

void Loop::finish_epoch() {
  if (training_) record_epoch();
  state_.inside_epoch = false;
  state_.can_snapshot = training_ != nullptr;
  seed_hook(DrawHook::kEpochEnd, {.seed = state_.seed, .epoch = state_.progress.epoch});
  notify_end(plan_.callbacks, &Callback::on_epoch_end, state_);
  for (const auto& logger : state_.loggers) logger->flush();
  // Before the point, which has the request of any rank, and while the run can be saved.
  agree_to_stop();
  take_point_if(memory_ != nullptr && state_.can_snapshot && may_take_point());
  state_.can_snapshot = false;
}

// Between epochs, where all ranks call it. Rank 0 decides. It needs the other ranks only if other
// hosts store the point, too.
void Loop::take_point_if(bool wanted) {
  if (shares_points_) wanted = comm_.vote(wanted ? 1 : 0).front() == 1;
  if (wanted) take_point();
}

// Called on rank 0 after every batch. Returns whether a point is due.
bool Loop::after_batch() {
  memory_->count_batch();
  report_recovery();
  checkpointer_->check_optimizers_once();  // without a state they could not go on from a point
  if (!state_.can_snapshot) return false;
  if (memory_->is_point_overdue()) finish_writing_for_point();
  return may_take_point();
}

// A point counts the files of checkpoints before it as written, so it waits for them.
bool Loop::may_take_point() const {
  return memory_->is_point_due() && !checkpointer_->is_writing();
}

// If files are written all the time, there is no moment without one. The wait counts as a part of
// the point's duration, so that it is a small share of the time, too.
void Loop::finish_writing_for_point() {
  if (!checkpointer_->is_writing()) return;
  point_began_ = Clock::now();
  const comm::AloneScope alone(comm_);  // the other ranks wait in the vote meanwhile
  checkpointer_->finish_writing();
}

// Collective inside an epoch, and also between epochs if other hosts store the point, too.
void Loop::take_point() {
  const auto began = std::exchange(point_began_, std::nullopt).value_or(Clock::now());
  if (memory_ != nullptr || state_.inside_epoch) {
    StateDict* const spare = memory_ != nullptr ? &memory_->spare() : nullptr;
    KeptRun point{.snapshot = checkpointer_->snapshot(spare)};
    if (memory_ != nullptr) {
      point.best_weights = checkpointer_->best_weights();
    }
    // Between epochs all ranks know of a request. Inside an epoch, the snapshot has it.
    point.stop_reason = state_.stop_reason;
    if (memory_ != nullptr) {
      memory_->keep_point(std::move(point), began);
      checkpointer_->need_files(true);
    }
  }
  if (!shares_points_) return;
  plan_.memory->share_point(comm_);
  if (memory_ != nullptr) memory_->set_next_point(began);
}

void Loop::report_recovery() {
  auto recovery = memory_->complete_recovery();
  if (!recovery) return;
  recovery->workers = comm_.size();
  say(plan_.options, describe(*recovery, memory_->restart_count()));
  if (!plan_.options.logdir) return;
  try {
    append_recovery(*plan_.options.logdir / "recoveries.jsonl", *recovery);
  } catch (const Error& error) {
    warn(error.what());  // the run itself goes on
  }
}

// Whether another attempt follows, so that callbacks do not learn of the failure. Only rank 0
// decides. Another rank is a process that ends now: if it did not fail itself, its callbacks have
// nothing to learn.
bool Loop::is_restarted(const std::exception& error) {
  if (plan_.memory == nullptr || !training_) return false;
  process::RankFailure failure{.rank = comm_.rank(),
                               .reason = message_of(error),
                               .kind = process::failure_kind(error),
                               .epoch = state_.progress.epoch,
                               .batch = state_.loader_batch};
  const auto reported = comm_.failure();
  if (reported) failure = *reported;
  // A rank that gives up because of another one has not failed itself.
  const bool is_consequence = dynamic_cast<const WorkerError*>(&error) != nullptr ||
                              dynamic_cast<const CommError*>(&error) != nullptr;
  const bool is_own = failure.rank == comm_.rank() && !is_consequence;
  // The launcher itself sees that a process has ended.
  const bool is_hang = failure.kind == process::FailureKind::kHang;
  if (plan_.memory->is_launched()) {
    if (is_own || is_hang) plan_.memory->note_failure(failure);
    // A node takes its ranks with it, or its links break.
    const bool is_lost = failure.kind == process::FailureKind::kLost || is_hang || !reported;
    return plan_.memory->will_restart(failure, !is_own && is_lost);
  }
  return memory_ == nullptr || memory_->will_restart(failure);
}

// A request of one rank applies to all. The reason is that of the first rank with a request.
void Loop::agree_to_stop() {
  if (!training_) return;  // an evaluation is one pass
  const auto votes = comm_.vote(signal_vote() | (state_.stop_reason ? 1 : 0));
  obey_signals(votes, {.rank = comm_.rank(), .replaces_workers = are_copies(plan_)});
  const auto first =
      std::ranges::find_if(votes, [](std::uint64_t vote) { return (vote & 1) != 0; });
  if (first == votes.end()) return;
  state_.stop_reason = comm_.broadcast_bytes(state_.stop_reason.value_or(""),
                                             static_cast<int>(first - votes.begin()));
}

void Loop::close_loggers(const RunEnd& end) noexcept {
  if (memory_ != nullptr) return memory_->close_loggers(&end);
  for (const auto& logger : state_.loggers) close_logger(*logger, &end);
}

// The files of a run that is over.
RunEnd Loop::run_end(const TrainResult& result, const std::exception_ptr& exception) const {
  RunEnd end{.status = end_status(exception)};
  if (training_ && plan_.options.logdir) end.summary = *plan_.options.logdir / "summary.json";
  end.model = result.best_checkpoint ? result.best_checkpoint : result.last_checkpoint;
  return end;
}

TrainResult Loop::finish(const std::exception_ptr& exception) {
  TrainResult result;
  result.model = state_.model;
  result.models = state_.models;
  result.last_metrics = state_.epoch_metrics;
  result.rank = comm_.rank();
  if (training_) finish_training(result);
  close_loggers(run_end(result, exception));
  return result;
}

void Loop::finish_training(TrainResult& result) {
  result.weights_hash = weights_hash(state_.model.weights());
  // All ranks have read the weights, which may be in the same memory.
  finish_together([this] { comm_.barrier(); });
  checkpointer_->load_best();
  state_.model.train(false);

  const double nan = std::numeric_limits<double>::quiet_NaN();
  // If this fails, the destructor of the replicas moves the parameters.
  finish_together([this] { training_->replicas.finish(); });
  result.best_metric = state_.selection.key && state_.best.epoch > 0 ? state_.best.score : nan;
  result.best_epoch = state_.best.epoch;
  result.best_metrics = state_.best.metrics;
  result.history = state_.history;
  result.epochs = state_.progress.epoch - totals_.epochs_before;
  result.steps = state_.progress.update_step - totals_.steps_before;
  result.best_checkpoint = state_.best_checkpoint;
  result.last_checkpoint = state_.last_checkpoint;
  result.stop_reason = state_.stop_reason;
  result.skipped_steps = state_.scaler != nullptr ? state_.scaler->skipped() : 0;
  result.train_samples_per_second =
      totals_.train_seconds > 0 ? static_cast<double>(totals_.train_samples) / totals_.train_seconds
                                : 0;
  result.seconds = seconds_since(totals_.start);
  if (memory_ != nullptr) {
    report_recovery();  // the last batch may have been finished before the failure
    result.recoveries = memory_->recoveries();
  }
  std::vector<std::string> profiles;
  if (plan_.options.profile) {
    const std::string own = profiler_.serialize();
    if (!finish_together([&] { profiles = comm_.gather_bytes(own); })) profiles = {own};
  }
  if (comm_.is_primary()) report_run(result, state_, plan_.options, profiles, operators_);
}

}  // namespace lockstep

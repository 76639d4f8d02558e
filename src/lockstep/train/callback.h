// A callback observes a run and makes requests; it never does the numerical work of the loop. This
// is the whole loop, with the hooks in the order in which they are called:
//
//   check                                    nothing is written yet
//   dry_run                                  train() only: a few samples of each loader
//   on_run_start
//     on_epoch_start
//       on_loader_start
//         on_batch_start                     for each shard of this worker that has samples
//           handle_batch                     the runner's: forward and loss
//           on_outputs                       inside of it: the outputs are there, no loss yet
//         on_forward                         the batch has its outputs and its loss
//           backward                         train loaders only
//         on_backward                        its gradients are complete; the model is unchanged
//           reduce, clip, optimizer          all workers, every accumulation_steps-th batch
//             on_gradients                   inside of it, on rank 0, if wants_gradients: the sums
//         handle_batch … optimizer again     for each further phase (state.phase), if there are any
//         on_batch_end                       for those shards again; batch_metrics is complete
//       on_step                              once per global batch, on every worker
//       on_loader_end                        put the loader's metrics into state.loader_metrics
//     on_epoch_end                           state.epoch_metrics is complete
//   on_checkpoint                            for each file, after a later batch or at the end
//   on_run_end                               always, if on_run_start was called
//
// on_outputs is called by state.outputs_ready(). SupervisedRunner calls it between forward and
// criterion; your own handle_batch may call it, too.
//
// on_checkpoint is called on rank 0 only, because the other ranks do not write:
// state.last_checkpoint is the file. A file is written beside training, so the call comes when the
// file is there: after a batch, before the next file is written, or before on_run_end. While it is
// called, state.progress, state.inside_epoch and state.epoch_metrics are those of the moment of the
// save, and state.can_snapshot is false. The file does not change during the call. Nothing
// collective may be done there, and what it changes is not in the file.
//
// With several workers, each worker has its own copy of every callback. The copies of rank 0 are
// the caller's objects, so after the run they hold what rank 0 observed. Metrics of loaders and
// epochs are the same on all ranks, so decisions that are based on them are the same, too.
//
// A callback that changes the model must do so in state.change_model(), because the workers of one
// host may share the memory of its parameters.
//
// Start hooks are called in the order of `traits().order`; callbacks of equal order are called as
// they were given. Every callback's end hook runs, even if the hook of another callback threw; the
// first exception is thrown again afterwards. When anything throws, on_exception is called for all
// callbacks with state.exception set, then on_run_end.
#pragma once

#include <concepts>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/engine/replica.h"
#include "lockstep/state/state_dict.h"
#include "lockstep/train/state.h"

namespace lockstep {

// The position of built-in callbacks in the order of all callbacks.
enum class Order : int {
  kRunner = -20,  // the runner's own handlers
  kInternal = 0,
  kMetric = 20,
  kMetricAggregation = 40,
  kScheduler = 80,
  kExternal = 100,
  kExternalExtra = 120,
};

// The ranks on which a callback is called.
enum class Ranks {
  kAll,
  kPrimary,  // rank 0 only
  // All ranks except rank 0, so none in a run of one process. Rank 0 writes checkpoints, and the
  // state of these callbacks is not in them.
  kOthers,
};

// What a run must know about a callback before it starts. The values must not change during a run.
struct CallbackTraits {
  Order order = Order::kExternal;  // its position among all callbacks
  Ranks ranks = Ranks::kAll;       // where it is called; the other ranks do not have it

  // Whether it may read gradients in on_backward, or use state.comm before the update. If no
  // callback does, known layers write their gradients directly to the memory in which they are
  // summed, and workers on several hosts reduce gradients while backward() still runs. Set it to
  // false if you can.
  bool uses_gradients = true;

  // Whether it makes sense in train() only. evaluate_loader refuses such a callback.
  bool needs_training = false;

  // Whether it may change state.batch before the model or metrics see it. If no callback does, the
  // dry run knows what they get, and tries them.
  bool changes_batch = true;

  // The metrics that it adds to a loader, if they are known. A wrong valid_metric is then refused
  // before the first batch. Nothing: it may add any metric.
  std::optional<std::vector<std::string>> metric_names = std::nullopt;
};

// For CallbackTraits::metric_names: the callback adds none.
inline std::vector<std::string> no_metrics() {
  return {};
}

class Callback {
 public:
  virtual ~Callback() = default;

  // The name in checkpoints and messages. By default it is the name of the type.
  virtual std::string name() const;

  // Its place in the run and what it needs. The defaults suit any callback.
  virtual CallbackTraits traits() const { return {}; }

  // The options that must be the same on all ranks, as text (base/option_text.h):
  // OptionText().with("weight", weight_).str(), for example. Ranks that a launcher started compare
  // it before the run, together with name(). Put in everything that changes what is trained, which
  // decisions are made or when ranks communicate; leave out paths and what only one rank uses. It
  // is not called for callbacks that are not on all ranks.
  virtual std::string agreed_options() const { return ""; }

  // The callback that does the work, if this one only forwards calls to it. Such a callback
  // forwards traits() and agreed_options(), too.
  virtual const Callback& inner() const { return *this; }

  // Whether a smaller or a larger value of its metric of that name is better. The best epoch, early
  // stopping and plateaus use it if the run's options do not say. Nothing: it does not know.
  virtual std::optional<Better> better(std::string_view /*metric*/) const { return std::nullopt; }

  // Its metrics of the current pass so far, for a progress bar; only those that cost almost
  // nothing.
  virtual Metrics running_metrics() const { return {}; }

  // Throws ConfigError if its options cannot work in this run. It is called before anything is
  // written, so a typing error costs nothing.
  virtual void check(const State&) const {}

  // Handles a batch of a few samples of a loader as its hooks would, and forgets it again. Throws
  // if it cannot. Called before a run, with the model's outputs in the batch (train/dry_run.h).
  virtual void dry_run(const std::string& /*loader*/, Batch& /*batch*/) {}

  virtual void on_run_start(State&) {}
  virtual void on_epoch_start(State&) {}
  virtual void on_loader_start(State&) {}
  virtual void on_batch_start(State&) {}
  virtual void on_outputs(State&) {}
  virtual void on_forward(State&) {}
  virtual void on_backward(State&) {}
  virtual void on_batch_end(State&) {}
  virtual void on_step(State&) {}
  virtual void on_loader_end(State&) {}
  virtual void on_epoch_end(State&) {}
  virtual void on_checkpoint(State&) {}
  virtual void on_run_end(State&) {}
  virtual void on_exception(State&) {}

  // Whether on_gradients is to be called in the update of the model that follows. All ranks are
  // asked, and their answers must be the same.
  virtual bool wants_gradients(const State&) const { return false; }
  // On rank 0 only: the gradients of all shards of all workers are summed, and clipped by value,
  // but not by norm or function. The parameters are unchanged. Nothing may be changed, and nothing
  // collective may be done. It costs two barriers if the workers share memory, else nothing.
  virtual void on_gradients(State&, const SummedGradients&) {}

  // Collective, called before a checkpoint inside an epoch. It brings what the other ranks
  // accumulated to rank 0 (gather_metric), because rank 0's state() is saved.
  virtual void gather(comm::Communicator&) {}

  // What it remembers, for a checkpoint. Empty: it remembers nothing.
  virtual StateDict state() const { return {}; }
  // Called before on_run_start of a run that is resumed, or that goes on after a failure
  // (TrainOptions::max_restarts). After a failure rank 0 still has the objects of the attempt that
  // failed. So the state is empty if state() was empty at the moment to which the run goes back and
  // is not empty now: the callback must forget what it remembers.
  virtual void load_state(const StateDict&) {}
};

using CallbackPtr = std::shared_ptr<Callback>;

// A list of callbacks. Pass a callback by value, or by shared_ptr to keep access to it.
//
//   .callbacks = {ls::AccuracyCallback({.num_classes = 10}), my_shared_callback}
class Callbacks {
 public:
  class Item {
   public:
    template <std::derived_from<Callback> C>
    Item(C callback) : held_(std::make_shared<C>(std::move(callback))) {}
    template <std::derived_from<Callback> C>
    Item(std::shared_ptr<C> callback) : held_(std::move(callback)) {}

    const CallbackPtr& get() const { return held_; }

   private:
    friend class Callbacks;
    CallbackPtr held_;
  };

  Callbacks() = default;
  Callbacks(std::initializer_list<Item> items);

  void add(Item item);
  bool empty() const { return items_.empty(); }
  std::size_t size() const { return items_.size(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

  // Sorted by traits().order; callbacks of equal order stay as they were added.
  std::vector<CallbackPtr> sorted() const;

 private:
  std::vector<CallbackPtr> items_;
};

// Calls one hook of every callback. `notify_all` throws the first exception at once; `notify_end`
// calls all callbacks first.
using Hook = void (Callback::*)(State&);
void notify_all(const std::vector<CallbackPtr>& callbacks, Hook hook, State& state);
void notify_end(const std::vector<CallbackPtr>& callbacks, Hook hook, State& state);

// Ends a run that failed with state.exception: calls on_exception and on_run_end of all callbacks.
// An exception that they throw becomes a warning, because the first error must reach the caller.
void notify_failure(const std::vector<CallbackPtr>& callbacks, State& state) noexcept;

}  // namespace lockstep

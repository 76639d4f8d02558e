// A callback observes a run and requests; it never does the loop's numerics. The whole loop, with
// the hooks in the order they are called:
//
//   check                                    nothing is written yet
//   on_run_start
//     on_epoch_start
//       on_loader_start
//         on_batch_start                     for each shard of this worker that has samples
//           handle_batch                     the runner's: forward and loss
//         on_forward                         the batch has its outputs and its loss
//           backward                         train loaders only
//         on_backward                        its gradients are there; the model is not yet updated
//           reduce, clip, optimizer          all workers, every accumulation_steps-th batch
//         on_batch_end                       for those shards again; batch_metrics is complete
//       on_step                              once a global batch, on every worker
//       on_loader_end                        put the loader's metrics into state.loader_metrics
//     on_epoch_end                           state.epoch_metrics is complete
//   on_run_end                               always, if on_run_start was called
//
// With several workers each has its own copy of every callback. Those of rank 0 are the caller's
// own, and what they remember after the run is what they were told there. Metrics of loaders and
// epochs are the same on all ranks, so what is decided by them is, too.
//
// A callback that changes the model itself does so in state.change_model(): workers of one host may
// have its parameters in common.
//
// Starts are called in the order of `order()`, ties as they were given. Every callback's end hook
// runs, even where another's threw; the first exception goes on afterwards. When anything throws,
// on_exception is called for all with state.exception set, then on_run_end.
#pragma once

#include <concepts>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/state/state_dict.h"
#include "lockstep/train/state.h"

namespace lockstep {

// Where built-in callbacks stand among the others.
enum class Order : int {
  kInternal = 0,
  kMetric = 20,
  kScheduler = 80,
  kExternal = 100,
  kExternalExtra = 120,
};

// Where a callback is called.
enum class Ranks { kAll, kPrimary };

class Callback {
 public:
  virtual ~Callback() = default;

  // Names it in checkpoints and messages. By default its type's name.
  virtual std::string name() const;
  virtual Order order() const { return Order::kExternal; }
  virtual Ranks ranks() const { return Ranks::kAll; }

  // The one that does the work, where this one only passes on to it.
  virtual const Callback& inner() const { return *this; }

  // The metrics it adds to a loader, where it knows; a wrong valid_metric is then refused before
  // the first batch. Nothing: it may add any.
  virtual std::optional<std::vector<std::string>> metric_names() const { return std::nullopt; }

  // Whether a smaller or a larger value of its metric of that name is the better one: what a best
  // epoch, an early stop and a plateau go by where the run does not say. Nothing: it does not know.
  virtual std::optional<Better> better(std::string_view /*metric*/) const { return std::nullopt; }

  // Its metrics of the pass at work so far, for a progress bar; only what costs next to nothing.
  virtual Metrics running_metrics() const { return {}; }

  // Whether it may look at gradients in on_backward, or use state.comm before the update. Where all
  // callbacks say no, known layers write theirs straight to where they are summed, and workers on
  // several hosts reduce them while backward() goes on: say no where you can.
  virtual bool uses_gradients() const { return true; }

  // Makes sense in train() only: evaluate_loader refuses it.
  virtual bool needs_training() const { return false; }

  // Throws ConfigError where its options cannot work in this run. Called before anything is
  // written, so that a typo costs nothing.
  virtual void check(const State&) const {}

  virtual void on_run_start(State&) {}
  virtual void on_epoch_start(State&) {}
  virtual void on_loader_start(State&) {}
  virtual void on_batch_start(State&) {}
  virtual void on_forward(State&) {}
  virtual void on_backward(State&) {}
  virtual void on_batch_end(State&) {}
  virtual void on_step(State&) {}
  virtual void on_loader_end(State&) {}
  virtual void on_epoch_end(State&) {}
  virtual void on_run_end(State&) {}
  virtual void on_exception(State&) {}

  // Collective, before a checkpoint inside an epoch: what it accumulated on other ranks goes to
  // rank 0 (gather_metric), whose state() is saved.
  virtual void gather(comm::Communicator&) {}

  // What it remembers, for a checkpoint. Empty: nothing.
  virtual StateDict state() const { return {}; }
  virtual void load_state(const StateDict&) {}
};

using CallbackPtr = std::shared_ptr<Callback>;

// Callbacks as they are passed: by value, or by shared_ptr to keep a hand on one.
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

  // By order(), ties as they were added.
  std::vector<CallbackPtr> sorted() const;

 private:
  std::vector<CallbackPtr> items_;
};

// Calls one hook of every callback. `notify_all` lets the first exception through at once;
// `notify_end` gives every callback its turn first.
using Hook = void (Callback::*)(State&);
void notify_all(const std::vector<CallbackPtr>& callbacks, Hook hook, State& state);
void notify_end(const std::vector<CallbackPtr>& callbacks, Hook hook, State& state);

// The end of a run that failed with state.exception: on_exception and on_run_end for everybody.
// What they throw becomes a warning: the first error is the one that must reach the caller.
void notify_failure(const std::vector<CallbackPtr>& callbacks, State& state) noexcept;

}  // namespace lockstep

// A callback from a function, for one hook:
//
//   .callbacks = {ls::on_epoch_end([](ls::State& s) { … }).every(5),
//                 ls::on_step([](ls::State& s) { … })
//                     .only_if([](const ls::State& s) { return s.is_train; })
//                     .on(ls::Ranks::kPrimary)}
//
// How calls are counted: every() and once() count occasions, not calls, so that all workers count
// the same, however many there are. An occasion is
//
//   an epoch                      on_epoch_start, on_epoch_end
//   a pass over a loader          on_loader_start, on_loader_end
//   a global batch of a loader    on_batch_start, on_outputs, on_forward, on_backward,
//                                 on_batch_end, on_step
//
// Each loader has its own count. On an occasion that is due, the function is called for all shards
// of the batch. only_if() does not change the count: with every(10), it is asked in each tenth
// batch.
//
// The counts are in the checkpoint. A run that is resumed inside an epoch calls its start hooks
// again, as those of every callback, without counting that epoch and pass twice.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lockstep/train/callback.h"

namespace lockstep {

enum class HookPoint {
  kRunStart,
  kEpochStart,
  kLoaderStart,
  kBatchStart,
  kOutputs,
  kForward,
  kBackward,
  kBatchEnd,
  kStep,
  kLoaderEnd,
  kEpochEnd,
  kCheckpoint,
  kRunEnd,
  kException,
};

// Made by ls::on_epoch_end() and the other functions below. Modifiers return a changed copy.
class LambdaCallback : public Callback {
 public:
  using Function = std::function<void(State&)>;
  using Predicate = std::function<bool(const State&)>;

  // Throws ConfigError if the function is empty.
  LambdaCallback(HookPoint hook, Function function);

  // Only on every n-th occasion: the n-th, the 2n-th, … Throws ConfigError if n < 1, and for hooks
  // that a run reaches once or only rank 0 reaches.
  [[nodiscard]] LambdaCallback every(std::int64_t n) const;
  // Only on the first occasion that every() and only_if() allow, on any rank; never again, also not
  // after a resume. Throws ConfigError for on_run_end and on_exception, after which nothing is
  // saved, and for on_checkpoint, which only rank 0 reaches. With only_if() it costs one vote of
  // all workers per occasion, until it was called.
  [[nodiscard]] LambdaCallback once() const;
  // Only if the predicate returns true. Given twice, both must. If it also has once(), all ranks
  // ask the predicate.
  [[nodiscard]] LambdaCallback only_if(Predicate predicate) const;
  // Only on these ranks. With every() or once() all ranks must have the callback, because all of
  // them count; the function is called on these ranks only.
  [[nodiscard]] LambdaCallback on(Ranks ranks) const;
  // Its name in checkpoints and messages. Default: that of the hook, for example "on_epoch_end".
  // Callbacks of one name are numbered in a checkpoint, so name those that count if callbacks
  // before them may change when the run is resumed.
  [[nodiscard]] LambdaCallback named(std::string name) const;

  // These set fields of CallbackTraits. The defaults depend on the hook:
  //   uses_gradients   true for on_backward. Set it for the hooks before it, too, if the
  //                    function uses state.comm, and set it to false for an on_backward that reads
  //                    no gradient.
  //   changes_batch    true for on_batch_start, on_outputs and on_forward
  //   adds_metrics     any, for these, on_backward and on_loader_end; none for the others,
  //                    whose metrics would come too late
  [[nodiscard]] LambdaCallback uses_gradients(bool uses) const;
  [[nodiscard]] LambdaCallback changes_batch(bool changes) const;
  [[nodiscard]] LambdaCallback adds_metrics(std::vector<std::string> names) const;
  [[nodiscard]] LambdaCallback needs_training(bool needs) const;

  std::string name() const override { return name_; }
  CallbackTraits traits() const override;
  std::string agreed_options() const override;

  void on_run_start(State& state) override;
  void on_epoch_start(State& state) override;
  void on_loader_start(State& state) override;
  void on_batch_start(State& state) override { shard(HookPoint::kBatchStart, state); }
  void on_outputs(State& state) override { shard(HookPoint::kOutputs, state); }
  void on_forward(State& state) override { shard(HookPoint::kForward, state); }
  void on_backward(State& state) override { shard(HookPoint::kBackward, state); }
  void on_batch_end(State& state) override { shard(HookPoint::kBatchEnd, state); }
  void on_step(State& state) override;
  void on_loader_end(State& state) override { occasion(HookPoint::kLoaderEnd, state); }
  void on_epoch_end(State& state) override { occasion(HookPoint::kEpochEnd, state); }
  void on_checkpoint(State& state) override { occasion(HookPoint::kCheckpoint, state); }
  void on_run_end(State& state) override { occasion(HookPoint::kRunEnd, state); }
  void on_exception(State& state) override { occasion(HookPoint::kException, state); }

  StateDict state() const override;
  void load_state(const StateDict& state) override;

 private:
  template <typename Change>
  LambdaCallback changed(Change change) const;
  bool counts() const { return every_ > 1 || once_; }
  bool is_per_shard() const;
  // Whether an occasion is new, or was counted before the run was resumed.
  enum class Seen { kNew, kBefore };
  void occasion(HookPoint hook, State& state, Seen seen = Seen::kNew);
  void shard(HookPoint hook, State& state);
  std::int64_t& count(const State& state);
  bool is_due(const State& state, Seen seen = Seen::kNew);
  bool call(State& state) const;
  void close(State& state, Seen seen = Seen::kNew);

  HookPoint hook_;
  Function function_;
  std::string name_;
  CallbackTraits traits_;
  std::int64_t every_ = 1;
  bool once_ = false;
  Predicate only_if_;

  // Occasions so far: of each loader, or of epochs. Equal on all ranks.
  std::map<std::string, std::int64_t> counts_;
  bool is_done_ = false;         // once() was called
  bool was_called_ = false;      // on the current occasion
  bool has_loaded_ = false;      // load_state() was called for the next run
  bool inside_resumed_ = false;  // the next epoch was counted before the resume
};

LambdaCallback on_run_start(LambdaCallback::Function function);
LambdaCallback on_epoch_start(LambdaCallback::Function function);
LambdaCallback on_loader_start(LambdaCallback::Function function);
LambdaCallback on_batch_start(LambdaCallback::Function function);
LambdaCallback on_outputs(LambdaCallback::Function function);
LambdaCallback on_forward(LambdaCallback::Function function);
LambdaCallback on_backward(LambdaCallback::Function function);
LambdaCallback on_batch_end(LambdaCallback::Function function);
LambdaCallback on_step(LambdaCallback::Function function);
LambdaCallback on_loader_end(LambdaCallback::Function function);
LambdaCallback on_epoch_end(LambdaCallback::Function function);
LambdaCallback on_checkpoint(LambdaCallback::Function function);
LambdaCallback on_run_end(LambdaCallback::Function function);
LambdaCallback on_exception(LambdaCallback::Function function);

}  // namespace lockstep

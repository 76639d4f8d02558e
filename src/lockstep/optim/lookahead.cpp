#include "lockstep/optim/lookahead.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/ranges.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/base/check.h"
#include "lockstep/base/option_text.h"
#include "lockstep/base/text.h"
#include "lockstep/optim/flat_optimizer.h"

namespace lockstep::optim {
namespace {

constexpr const char* kLookahead = "Lookahead";
// The key in a state whose tensors are sent later; no file contains it.
constexpr const char* kSlowIsSent = "slow_is_sent";
// The key of a state of Python without its tensors; no file contains it.
constexpr const char* kOfPython = "of_python";

void check_lookahead(const Lookahead& options) {
  const Check check(std::string("optimizer ") + kLookahead);
  check.require(options.optimizer.has_value(), "optimizer", "one", "none");
  check.count("k", options.k);
  check.fraction("alpha", options.alpha);
}

// The elements of a buffer, within a range, of the parameters that take part in the next update.
// The padding after a parameter belongs to it.
std::vector<ElementRange> used_ranges(const FlatParameters::Buffer& buffer,
                                      const ElementRange& within) {
  std::vector<ElementRange> ranges;
  for (std::size_t j = 0; j < buffer.slices.size(); ++j) {
    if (!buffer.slices[j].used) continue;
    const bool is_last = j + 1 == buffer.slices.size();
    const std::int64_t next = is_last ? buffer.values.numel() : buffer.slices[j + 1].offset;
    const ElementRange range{.begin = std::max(within.begin, buffer.slices[j].offset),
                             .end = std::min(within.end, next)};
    if (range.size() <= 0) continue;
    if (!ranges.empty() && ranges.back().end == range.begin) {
      ranges.back().end = range.end;
    } else {
      ranges.push_back(range);
    }
  }
  return ranges;
}

class LookaheadOptimizer final : public Optimizer {
 public:
  LookaheadOptimizer(const Lookahead& options, FlatParameters& parameters)
      : options_(options),
        parameters_(parameters),
        optimizer_(options.optimizer.make(parameters)),
        slow_(parameters.buffers().size()) {
    // Their values are taken in the first step: weights may still be loaded.
    for (std::size_t i = 0; i < slow_.size(); ++i) {
      if (parameters_.buffers()[i].is_trainable()) make_room(i);
    }
  }

  std::string name() const override { return kLookahead; }

  std::string describe() const override {
    return describe_lookahead(options_, optimizer_->describe());
  }

  void step(const StepOptions& options) override {
    for (std::size_t i = 0; i < slow_.size(); ++i) {
      if (!parameters_.buffers()[i].is_trainable()) continue;
      make_room(i);
      if (!std::exchange(slow_[i].has_begun, true)) copy_values(i, options.part);
    }
    const bool is_sync = (num_steps_ + 1) % options_.k == 0;
    std::vector<std::vector<ElementRange>> used;
    if (is_sync) used = find_used(options.part);  // the step forgets it
    optimizer_->step(options);
    ++num_steps_;
    if (is_sync) sync(used);
  }

  bool steps_in_parts() const override { return optimizer_->steps_in_parts(); }

  double lr() const override { return optimizer_->lr(); }
  void set_lr(double lr) override { optimizer_->set_lr(lr); }
  std::optional<double> momentum() const override { return optimizer_->momentum(); }
  void set_momentum(double momentum) override { optimizer_->set_momentum(momentum); }
  OptimizerPace pace() const override { return optimizer_->pace(); }
  void set_pace(const OptimizerPace& pace) override { optimizer_->set_pace(pace); }

  StateDict state() const override {
    return state_with(optimizer_->state(), [](const torch::Tensor& part) {
      return part.clone(torch::MemoryFormat::Contiguous);
    });
  }
  StateDict view_state() const override {
    return state_with(optimizer_->view_state(), [](const torch::Tensor& part) { return part; });
  }
  void check_state() const override { optimizer_->check_state(); }

  void load_state(const StateDict& state) override {
    if (is_of_python(state)) return load_python(state);
    if (state.contains(kOfPython)) return load_python(state.get<StateDict>(kOfPython));
    const auto found = state.get<std::string>("name");
    if (found != kLookahead) {
      throw CheckpointError("optimizer {}: expected its own state, found that of {}", kLookahead,
                            found);
    }
    Lookahead options = options_;
    options.k = state.get<std::int64_t>("k");
    options.alpha = state.get<double>("alpha");
    try {
      check_lookahead(options);
    } catch (const ConfigError& error) {
      throw CheckpointError("in the state of an optimizer: {}", error.what());
    }
    const auto num_steps = state.get<std::int64_t>("step");
    const auto slow = state.get<StateDict>("slow");
    check_slow(slow, state.contains(kSlowIsSent));
    optimizer_->load_state(state.get<StateDict>("optimizer"));
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < slow_.size(); ++i) {
      const auto& slices = parameters_.buffers()[i].slices;
      // A buffer is in a state if one of its parameters was trained.
      const bool has_begun = slow.contains(slices.front().name);
      if (has_begun) make_room(i);
      slow_[i].has_begun = has_begun;
      if (!has_begun || state.contains(kSlowIsSent)) continue;
      for (const auto& slice : slices) {
        slice_view(slice, slow_[i].flat).copy_(slow.get<torch::Tensor>(slice.name));
      }
    }
    options_.k = options.k;
    options_.alpha = options.alpha;
    num_steps_ = num_steps;
  }

  StateDict without_tensors(const StateDict& state) const override {
    if (is_of_python(state)) return {{kOfPython, optimizer_->without_tensors(state)}};
    StateDict small = state;
    StateDict names;
    for (const std::string& name : state.get<StateDict>("slow").keys()) names.set(name, {});
    small.set(kSlowIsSent, true);
    small.set("slow", std::move(names));
    small.set("optimizer", optimizer_->without_tensors(state.get<StateDict>("optimizer")));
    return small;
  }

  std::vector<torch::Tensor> tensors() const override {
    std::vector<torch::Tensor> all = optimizer_->tensors();
    for (const Slow& slow : slow_) {
      if (slow.flat.defined()) all.push_back(slow.flat);
    }
    return all;
  }

 private:
  // By buffer, the elements of a part that take part in this step. A parameter that was frozen
  // since the last update of the slow weights must not move, as with every other optimizer.
  std::vector<std::vector<ElementRange>> find_used(const Part& part) {
    if (part.count == 1) parameters_.collect_grads();
    std::vector<std::vector<ElementRange>> used;
    for (const auto& buffer : parameters_.buffers()) {
      used.emplace_back();
      if (!buffer.is_trainable()) continue;
      used.back() = used_ranges(buffer, range_of(part, buffer.values.numel()));
    }
    return used;
  }

  void sync(const std::vector<std::vector<ElementRange>>& used) {
    for (std::size_t i = 0; i < slow_.size(); ++i) {
      const auto& buffer = parameters_.buffers()[i];
      for (const ElementRange& range : used[i]) {
        apply_best(LookaheadUpdate{.alpha = options_.alpha},
                   {.values = buffer.values, .grads = buffer.grads, .state = {slow_[i].flat}},
                   range);
      }
    }
  }

  // Python's torch has no Lookahead. A state of Python is that of the optimizer in it.
  static bool is_of_python(const StateDict& state) {
    return !state.contains("name") && has_torch_layout(state);
  }

  // The slow weights begin with the next step.
  void load_python(const StateDict& state) {
    optimizer_->load_state(state);
    for (Slow& slow : slow_) slow.has_begun = false;
    num_steps_ = 0;
  }

  // The slow weights of a buffer.
  struct Slow {
    torch::Tensor flat;      // undefined until the buffer is trained
    bool has_begun = false;  // it has the values with which training began
  };

  // The memory is shared only if every rank updates its part. Otherwise one rank may step for all,
  // and the others do not come here.
  void make_room(std::size_t buffer) {
    if (slow_[buffer].flat.defined()) return;
    slow_[buffer].flat = steps_in_parts() ? parameters_.zeros_like_values(buffer)
                                          : torch::zeros_like(parameters_.buffers()[buffer].values);
  }

  void copy_values(std::size_t buffer, const Part& part) {
    const torch::NoGradGuard no_grad;
    const torch::Tensor& values = parameters_.buffers()[buffer].values;
    const ElementRange range = range_of(part, values.numel());
    slow_[buffer]
        .flat.narrow(0, range.begin, range.size())
        .copy_(values.narrow(0, range.begin, range.size()));
  }

  template <typename Take>
  StateDict state_with(StateDict optimizer, const Take& take) const {
    std::vector<StateDict::Entry> tensors;
    for (std::size_t i = 0; i < slow_.size(); ++i) {
      if (!slow_[i].has_begun) continue;
      for (const auto& slice : parameters_.buffers()[i].slices) {
        tensors.emplace_back(slice.name, take(slice_view(slice, slow_[i].flat)));
      }
    }
    return {{"name", name()},
            {"step", num_steps_},
            {"k", options_.k},
            {"alpha", options_.alpha},
            {"slow", StateDict(std::move(tensors))},
            {"optimizer", std::move(optimizer)}};
  }

  // Throws CheckpointError if the slow weights are those of another model.
  void check_slow(const StateDict& slow, bool is_sent) const {
    std::vector<std::string> known;
    for (const auto& buffer : parameters_.buffers()) {
      const bool has_begun = slow.contains(buffer.slices.front().name);
      for (const auto& slice : buffer.slices) {
        known.push_back(slice.name);
        if (!has_begun || is_sent) continue;
        if (!slow.contains(slice.name)) {
          throw CheckpointError("optimizer {}: slow: nothing for the model's parameter {}",
                                kLookahead, slice.name);
        }
        const auto tensor = slow.get<torch::Tensor>(slice.name);
        if (tensor.sizes() == slice.parameter.sizes() &&
            tensor.scalar_type() == slice.parameter.scalar_type()) {
          continue;
        }
        throw CheckpointError("optimizer {}: slow: parameter {}: expected {} [{}], found {} [{}]",
                              kLookahead, slice.name, c10::toString(slice.parameter.scalar_type()),
                              fmt::join(slice.parameter.sizes(), ", "),
                              c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
      }
    }
    for (const std::string& key : slow.keys()) {
      if (std::ranges::find(known, key) != known.end()) continue;
      throw CheckpointError("optimizer {}: slow: the model has no parameter {}; {}", kLookahead,
                            key, suggest(key, known));
    }
  }

  Lookahead options_;
  FlatParameters& parameters_;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<Slow> slow_;  // one per buffer
  std::int64_t num_steps_ = 0;
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const Lookahead& options, FlatParameters& parameters) {
  check_lookahead(options);
  return std::make_unique<LookaheadOptimizer>(options, parameters);
}

std::string describe_lookahead(const Lookahead& options, const std::string& optimizer) {
  return fmt::format("{}({})", kLookahead,
                     OptionText()
                         .with("k", options.k)
                         .with("alpha", options.alpha)
                         .with("optimizer", optimizer)
                         .str());
}

}  // namespace lockstep::optim

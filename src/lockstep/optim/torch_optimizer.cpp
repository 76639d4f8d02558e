#include "lockstep/optim/torch_optimizer.h"

#include <cstring>
#include <map>
#include <set>
#include <sstream>
#include <type_traits>
#include <utility>
#include <vector>

#include <c10/util/Type.h>
#include <fmt/ranges.h>
#include <torch/optim.h>
#include <torch/serialize.h>

#include "lockstep/base/check.h"
#include "lockstep/optim/torch_layout.h"

namespace lockstep::optim {
namespace {

void check_parameters(const std::string& name, const torch::optim::Optimizer& optimizer,
                      const FlatParameters& parameters) {
  std::set<const c10::TensorImpl*> known;
  for (const auto& buffer : parameters.buffers()) {
    for (const auto& slice : buffer.slices) known.insert(slice.parameter.unsafeGetTensorImpl());
  }
  std::size_t total = 0;
  std::vector<torch::Tensor> unknown;
  for (const auto& group : optimizer.param_groups()) {
    for (const torch::Tensor& parameter : group.params()) {
      ++total;
      if (!known.contains(parameter.unsafeGetTensorImpl())) unknown.push_back(parameter);
    }
  }
  if (total == 0) throw ConfigError("optimizer {}: it has no parameters", name);
  if (!unknown.empty()) {
    throw ConfigError(
        "optimizer {}: {} of its {} parameters are not trainable parameters of the model; the "
        "first of them has shape [{}]",
        name, unknown.size(), total, fmt::join(unknown.front().sizes(), ", "));
  }
}

// The momentum in the options, whose name depends on the optimizer's type.
std::optional<double> momentum_of(const torch::optim::OptimizerOptions& options) {
  using namespace torch::optim;
  if (auto* sgd = dynamic_cast<const SGDOptions*>(&options)) return sgd->momentum();
  if (auto* rmsprop = dynamic_cast<const RMSpropOptions*>(&options)) return rmsprop->momentum();
  if (auto* adam = dynamic_cast<const AdamOptions*>(&options)) return std::get<0>(adam->betas());
  if (auto* adamw = dynamic_cast<const AdamWOptions*>(&options)) return std::get<0>(adamw->betas());
  return std::nullopt;
}

void set_momentum_of(torch::optim::OptimizerOptions& options, double momentum) {
  using namespace torch::optim;
  if (auto* sgd = dynamic_cast<SGDOptions*>(&options)) sgd->momentum(momentum);
  if (auto* rmsprop = dynamic_cast<RMSpropOptions*>(&options)) rmsprop->momentum(momentum);
  if (auto* adam = dynamic_cast<AdamOptions*>(&options)) std::get<0>(adam->betas()) = momentum;
  if (auto* adamw = dynamic_cast<AdamWOptions*>(&options)) std::get<0>(adamw->betas()) = momentum;
}

std::string name_of(const torch::optim::Optimizer& optimizer) {
  return c10::demangle(typeid(optimizer).name());
}

std::string text_of(const c10::IValue& value) {
  if (value.isDouble()) return fmt::format("{}", value.toDouble());
  if (!value.isTuple()) return c10::str(value);
  std::vector<std::string> elements;
  for (const c10::IValue& element : value.toTupleRef().elements()) {
    elements.push_back(text_of(element));
  }
  return fmt::format("({})", fmt::join(elements, ", "));
}

// "lr=0.1, momentum=0.9, …": all that serialize() of the options writes, because torch has no other
// list of an optimizer's options. Options of a user's class without serialize() have only "lr=0.1".
std::string text_of(const torch::optim::OptimizerOptions& options) {
  std::vector<std::string> fields;
  try {
    torch::serialize::OutputArchive written;
    options.serialize(written);
    std::stringstream stream;
    written.save_to(stream);
    torch::serialize::InputArchive archive;
    archive.load_from(stream);
    for (const std::string& name : archive.keys()) {
      c10::IValue value;
      archive.read(name, value);
      fields.push_back(fmt::format("{}={}", name, text_of(value)));
    }
  } catch (const c10::Error&) {
    fields.clear();
  }
  if (fields.empty()) return fmt::format("lr={}", options.get_lr());
  return fmt::format("{}", fmt::join(fields, ", "));
}

// The key of a parameter's state is text or a pointer, depending on the version of LibTorch.
template <typename States>
auto& state_of(States& states, const torch::Tensor& parameter) {
  if constexpr (std::is_same_v<typename States::key_type, std::string>) {
    return states[c10::str(parameter.unsafeGetTensorImpl())];
  } else {
    return states[parameter.unsafeGetTensorImpl()];
  }
}

// Torch's Adagrad makes the state of a parameter in its constructor, and fails in step() for a
// parameter that it got later. Torch's other optimizers make a missing state in step().
void make_missing_state(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter) {
  const auto* const adagrad = dynamic_cast<const torch::optim::Adagrad*>(&optimizer);
  if (adagrad == nullptr) return;
  auto& held = state_of(optimizer.state(), parameter);
  if (held != nullptr) return;
  const auto& options = static_cast<const torch::optim::AdagradOptions&>(adagrad->defaults());
  auto state = std::make_unique<torch::optim::AdagradParamState>();
  state->step(0);
  state->sum(torch::full_like(parameter.detach(), options.initial_accumulator_value(),
                              torch::MemoryFormat::Preserve));
  held = std::move(state);
}

class TorchOptimizerAdapter final : public Optimizer {
 public:
  TorchOptimizerAdapter(std::shared_ptr<torch::optim::Optimizer> optimizer,
                        FlatParameters& parameters, const TorchOptimizerOptions& options)
      : optimizer_(std::move(optimizer)), parameters_(parameters), options_(options) {
    if (dynamic_cast<torch::optim::LBFGS*>(optimizer_.get()) != nullptr) {
      throw ConfigError(
          "optimizer {}: expected one that steps from gradients, but it evaluates the loss itself",
          name());
    }
    check_parameters(name(), *optimizer_, parameters);
    for (const auto& buffer : parameters.buffers()) was_frozen_.push_back(!buffer.is_trainable());
    const double first = lr();
    for (const auto& group : optimizer_->param_groups()) {
      lr_ratios_.push_back(first > 0.0 ? group.options().get_lr() / first : 1.0);
    }
  }

  std::string name() const override { return name_of(*optimizer_); }

  std::string describe() const override { return optim::describe(*optimizer_); }

  void step(const StepOptions& options) override {
    parameters_.collect_grads();
    for (std::size_t i = 0; i < parameters_.buffers().size(); ++i) {
      const FlatParameters::Buffer& buffer = parameters_.buffers()[i];
      if (!buffer.is_trainable()) continue;
      if (options.grad_scale != 1.0) buffer.grads.mul_(options.grad_scale);
      if (options_.adds_unfrozen && was_frozen_[i]) add_unfrozen(buffer);
    }
    // Torch's optimizers skip parameters without a gradient.
    bind_grads(/*all=*/false);
    optimizer_->step();
    bind_grads(/*all=*/true);
    if (options.zero_grad) parameters_.zero_grad();
  }

  double lr() const override { return optimizer_->param_groups().front().options().get_lr(); }

  void set_lr(double lr) override {
    Check("optimizer " + name()).not_negative("lr", lr);
    auto& groups = optimizer_->param_groups();
    for (std::size_t i = 0; i < groups.size(); ++i) {
      groups[i].options().set_lr(lr * lr_ratios_[i]);
    }
  }

  std::optional<double> momentum() const override {
    return momentum_of(optimizer_->param_groups().front().options());
  }

  void set_momentum(double momentum) override {
    if (!this->momentum()) {
      throw Error("optimizer {}: it has no momentum that could be set to {}", name(), momentum);
    }
    for (auto& group : optimizer_->param_groups()) set_momentum_of(group.options(), momentum);
  }

  OptimizerPace pace() const override {
    OptimizerPace now{.lr_ratios = lr_ratios_};
    for (const auto& group : optimizer_->param_groups()) {
      now.lrs.push_back(group.options().get_lr());
      if (const auto momentum = momentum_of(group.options())) now.momenta.push_back(*momentum);
    }
    return now;
  }

  // The ratios, too: those of the constructor are wrong if a scheduler had changed the rates.
  void set_pace(const OptimizerPace& pace) override {
    auto& groups = optimizer_->param_groups();
    if (groups.size() != pace.lrs.size()) {
      throw Error("optimizer {}: expected {} parameter groups, as when the run began, found {}",
                  name(), pace.lrs.size(), groups.size());
    }
    lr_ratios_ = pace.lr_ratios;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      groups[i].options().set_lr(pace.lrs[i]);
      if (i < pace.momenta.size()) set_momentum_of(groups[i].options(), pace.momenta[i]);
    }
  }

  StateDict state() const override {
    const std::string bytes = archived();
    torch::Tensor tensor = torch::empty({static_cast<std::int64_t>(bytes.size())}, torch::kUInt8);
    std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
    // The archive also contains lr and momentum, but not every version of torch reads them back.
    StateList lrs;
    for (const auto& group : optimizer_->param_groups()) lrs.push_back(group.options().get_lr());
    StateDict state{{"name", name()}, {"lr", std::move(lrs)}, {"archive", tensor}};
    state.set("lr_ratios", StateList(lr_ratios_.begin(), lr_ratios_.end()));
    state.set("parameters", names_by_group());
    if (const auto momentum = this->momentum()) state.set("momentum", *momentum);
    const std::vector<double> momenta = pace().momenta;
    if (!momenta.empty()) state.set("momenta", StateList(momenta.begin(), momenta.end()));
    return state;
  }

  void check_state() const override {
    std::string why = "save() writes nothing";
    try {
      std::istringstream stream(archived());
      torch::serialize::InputArchive archive;
      archive.load_from(stream);
      if (!archive.keys().empty()) return;
    } catch (const c10::Error& error) {
      why = error.what_without_backtrace();
    }
    throw ConfigError(
        "optimizer {}: its state cannot be saved, so the run could not be resumed ({}); override "
        "save() and load() of the optimizer and serialize() of its options and of its state, or "
        "save the weights alone: CheckpointCallback({{.mode = CheckpointMode::kModel}})",
        name(), why);
  }

  void load_state(const StateDict& state) override {
    if (!state.contains("name") && has_torch_layout(state)) {
      throw CheckpointError(
          "optimizer {}: a torch optimizer of C++ cannot load the state of one of Python's; use "
          "Lockstep's own (ls::optim), which can",
          name());
    }
    const auto found = state.get<std::string>("name");
    if (found != name()) {
      throw CheckpointError("optimizer {}: expected its own state, found that of {}", name(),
                            found);
    }
    const auto lrs = state.get<StateList>("lr");
    auto& groups = optimizer_->param_groups();
    if (lrs.size() != groups.size()) {
      throw CheckpointError("optimizer {}: expected {} parameter groups, found {}", name(),
                            groups.size(), lrs.size());
    }
    // The archive identifies its parameters only by position. Parameters of this run that it does
    // not contain (frozen then, trained now) follow them, without a state.
    const auto rest = order_as(state.get_or<StateList>("parameters", {}));
    const torch::Tensor bytes = state.get<torch::Tensor>("archive").contiguous();
    std::istringstream stream(
        std::string(static_cast<const char*>(bytes.data_ptr()), bytes.nbytes()));
    try {
      torch::serialize::InputArchive archive;
      archive.load_from(stream);
      optimizer_->state().clear();  // load() replaces only what the archive contains
      optimizer_->load(archive);
    } catch (const c10::Error& error) {
      throw CheckpointError("optimizer {}: its state does not fit: {}", name(),
                            error.what_without_backtrace());
    }
    for (std::size_t i = 0; i < rest.size(); ++i) {
      for (const torch::Tensor& parameter : rest[i]) add(parameter, groups[i]);
    }
    for (std::size_t i = 0; i < groups.size(); ++i) {
      if (const double* lr = lrs[i].get_if<double>()) groups[i].options().set_lr(*lr);
    }
    load_ratios(state);
    load_momenta(state);
  }

 private:
  // The optimizer may have been made from an object that another run has trained. Its rates are
  // then those at the end of that run: if they are 0, they have no ratios. An older checkpoint has
  // none, and those of the constructor stay.
  void load_ratios(const StateDict& state) {
    std::vector<double> ratios = numbers_of_groups(state, "lr_ratios");
    if (!ratios.empty()) lr_ratios_ = std::move(ratios);
  }

  // An older checkpoint has only that of the first group.
  void load_momenta(const StateDict& state) {
    if (!momentum()) return;
    const std::vector<double> momenta = numbers_of_groups(state, "momenta");
    if (momenta.empty()) return set_momentum(state.get<double>("momentum"));
    auto& groups = optimizer_->param_groups();
    for (std::size_t i = 0; i < groups.size(); ++i) {
      set_momentum_of(groups[i].options(), momenta[i]);
    }
  }

  // One number for each group; none if the checkpoint does not have them.
  std::vector<double> numbers_of_groups(const StateDict& state, const char* key) const {
    const auto saved = state.get_or<StateList>(key, {});
    std::vector<double> numbers;
    for (const StateValue& item : saved) {
      if (const double* const number = item.get_if<double>()) numbers.push_back(*number);
    }
    const std::size_t groups = optimizer_->param_groups().size();
    if (!saved.empty() && numbers.size() != groups) {
      throw CheckpointError("optimizer {}: expected {} of {} parameter groups, found {}", name(),
                            key, groups, numbers.size());
    }
    return numbers;
  }

  std::string archived() const {
    torch::serialize::OutputArchive archive;
    optimizer_->save(archive);
    std::ostringstream stream;
    archive.save_to(stream);
    return stream.str();
  }

  // Binds the gradients of all parameters, or only those of parameters that take part in this step.
  void bind_grads(bool all) {
    for (const auto& buffer : parameters_.buffers()) {
      if (!buffer.is_trainable()) continue;
      for (const auto& slice : buffer.slices) {
        slice.parameter.mutable_grad() = all || slice.used ? slice.grad : torch::Tensor();
      }
    }
  }

  void add_unfrozen(const FlatParameters::Buffer& buffer) {
    for (const auto& slice : buffer.slices) {
      if (slice.used && !has(slice.parameter)) {
        add(slice.parameter, optimizer_->param_groups().front());
        known_.insert(slice.parameter.unsafeGetTensorImpl());
      }
    }
  }

  bool has(const torch::Tensor& parameter) {
    if (known_.empty()) {
      for (const auto& group : optimizer_->param_groups()) {
        for (const torch::Tensor& one : group.params()) known_.insert(one.unsafeGetTensorImpl());
      }
    }
    return known_.contains(parameter.unsafeGetTensorImpl());
  }

  void add(const torch::Tensor& parameter, torch::optim::OptimizerParamGroup& group) {
    group.params().push_back(parameter);
    make_missing_state(*optimizer_, parameter);
  }

  // One list of names for each group, in the group's order.
  StateList names_by_group() const {
    std::map<const c10::TensorImpl*, std::string> names;
    for (const auto& buffer : parameters_.buffers()) {
      for (const auto& slice : buffer.slices) {
        names[slice.parameter.unsafeGetTensorImpl()] = slice.name;
      }
    }
    StateList groups;
    for (const auto& group : optimizer_->param_groups()) {
      StateList of_group;
      for (const torch::Tensor& parameter : group.params()) {
        of_group.push_back(names.at(parameter.unsafeGetTensorImpl()));
      }
      groups.push_back(std::move(of_group));
    }
    return groups;
  }

  const torch::Tensor& parameter_named(const std::string& name) const {
    for (const auto& buffer : parameters_.buffers()) {
      for (const auto& slice : buffer.slices) {
        if (slice.name == name) return slice.parameter;
      }
    }
    throw CheckpointError("optimizer {}: the model has no parameter {}", this->name(), name);
  }

  // Gives every group the parameters that it had in a checkpoint, in that order. Returns the other
  // parameters of each group. A checkpoint of version 0.1.0 has no names: then nothing is changed.
  std::vector<std::vector<torch::Tensor>> order_as(const StateList& saved) {
    auto& groups = optimizer_->param_groups();
    std::vector<std::vector<torch::Tensor>> ordered(groups.size()), rest(groups.size());
    if (saved.empty()) return rest;
    std::set<const c10::TensorImpl*> taken;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const StateList* const names = i < saved.size() ? saved[i].get_if<StateList>() : nullptr;
      if (names == nullptr) {
        throw CheckpointError("optimizer {}: expected the names of {} parameter groups", name(),
                              groups.size());
      }
      for (const StateValue& item : *names) {
        const std::string* const name = item.get_if<std::string>();
        const torch::Tensor& parameter =
            parameter_named(name == nullptr ? "without a name" : *name);
        if (!taken.insert(parameter.unsafeGetTensorImpl()).second) {
          throw CheckpointError("optimizer {}: parameter {} is in its state twice", this->name(),
                                *name);
        }
        ordered[i].push_back(parameter);
      }
    }
    for (std::size_t i = 0; i < groups.size(); ++i) {
      for (const torch::Tensor& parameter : groups[i].params()) {
        if (!taken.contains(parameter.unsafeGetTensorImpl())) rest[i].push_back(parameter);
      }
      groups[i].params() = std::move(ordered[i]);
    }
    known_.clear();
    return rest;
  }

  std::shared_ptr<torch::optim::Optimizer> optimizer_;
  FlatParameters& parameters_;
  TorchOptimizerOptions options_;
  std::vector<bool> was_frozen_;            // by buffer: frozen when the optimizer was made
  std::set<const c10::TensorImpl*> known_;  // parameters of all groups; filled by has()
  std::vector<double> lr_ratios_;           // each group's lr to the first's, when the run began
};

}  // namespace

std::string describe(const torch::optim::Optimizer& optimizer) {
  std::string text = name_of(optimizer);
  for (const auto& group : optimizer.param_groups()) {
    text += fmt::format("({})", text_of(group.options()));
  }
  return text;
}

std::unique_ptr<Optimizer> make_optimizer(std::shared_ptr<torch::optim::Optimizer> optimizer,
                                          FlatParameters& parameters,
                                          const TorchOptimizerOptions& options) {
  if (optimizer == nullptr) throw ConfigError("optimizer: expected a torch optimizer, got null");
  return std::make_unique<TorchOptimizerAdapter>(std::move(optimizer), parameters, options);
}

}  // namespace lockstep::optim

#include "lockstep/optim/torch_optimizer.h"

#include <cstring>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include <c10/util/Type.h>
#include <fmt/ranges.h>
#include <torch/optim.h>
#include <torch/serialize.h>

#include "lockstep/optim/check.h"

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

// Where an options type keeps its momentum.
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
    for (const auto& buffer : parameters.buffers()) was_asleep_.push_back(!buffer.is_awake());
    const double first = lr();
    for (const auto& group : optimizer_->param_groups()) {
      lr_ratios_.push_back(first > 0.0 ? group.options().get_lr() / first : 1.0);
    }
  }

  std::string name() const override {
    const torch::optim::Optimizer& optimizer = *optimizer_;
    return c10::demangle(typeid(optimizer).name());
  }

  void step(const StepOptions& options) override {
    parameters_.collect_grads();
    for (std::size_t i = 0; i < parameters_.buffers().size(); ++i) {
      const FlatParameters::Buffer& buffer = parameters_.buffers()[i];
      if (!buffer.is_awake()) continue;
      if (options.grad_scale != 1.0) buffer.grads.mul_(options.grad_scale);
      if (options_.adds_unfrozen && was_asleep_[i]) add_unfrozen(buffer);
    }
    // Torch's optimizers pass over parameters without a gradient.
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
      throw Error("optimizer {}: momentum: it has none to set to {}", name(), momentum);
    }
    for (auto& group : optimizer_->param_groups()) set_momentum_of(group.options(), momentum);
  }

  StateDict state() const override {
    const std::string bytes = archived();
    torch::Tensor tensor = torch::empty({static_cast<std::int64_t>(bytes.size())}, torch::kUInt8);
    std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
    // The archive holds lr and momentum, too, but not every version of torch reads them back.
    StateList lrs;
    for (const auto& group : optimizer_->param_groups()) lrs.push_back(group.options().get_lr());
    StateDict state{{"name", name()}, {"lr", std::move(lrs)}, {"archive", tensor}};
    if (!added_.empty()) state.set("added", StateList(added_.begin(), added_.end()));
    if (const auto momentum = this->momentum()) state.set("momentum", *momentum);
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
    add_by_name(state.get_or<StateList>("added", {}));
    const torch::Tensor bytes = state.get<torch::Tensor>("archive").contiguous();
    std::istringstream stream(
        std::string(static_cast<const char*>(bytes.data_ptr()), bytes.nbytes()));
    try {
      torch::serialize::InputArchive archive;
      archive.load_from(stream);
      optimizer_->state().clear();  // load() only replaces what the archive has
      optimizer_->load(archive);
    } catch (const c10::Error& error) {
      throw CheckpointError("optimizer {}: its state does not fit: {}", name(),
                            error.what_without_backtrace());
    }
    for (std::size_t i = 0; i < groups.size(); ++i) {
      if (const double* lr = lrs[i].get_if<double>()) groups[i].options().set_lr(*lr);
    }
    if (momentum()) set_momentum(state.get<double>("momentum"));
  }

 private:
  std::string archived() const {
    torch::serialize::OutputArchive archive;
    optimizer_->save(archive);
    std::ostringstream stream;
    archive.save_to(stream);
    return stream.str();
  }

  // The gradients of all parameters, or none where a parameter does not take part in this step.
  void bind_grads(bool all) {
    for (const auto& buffer : parameters_.buffers()) {
      if (!buffer.is_awake()) continue;
      for (const auto& slice : buffer.slices) {
        slice.parameter.mutable_grad() = all || slice.used ? slice.grad : torch::Tensor();
      }
    }
  }

  void add_unfrozen(const FlatParameters::Buffer& buffer) {
    for (const auto& slice : buffer.slices) {
      if (slice.used && !has(slice.parameter)) add(slice);
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

  void add(const FlatParameters::Slice& slice) {
    optimizer_->param_groups().front().params().push_back(slice.parameter);
    known_.insert(slice.parameter.unsafeGetTensorImpl());
    added_.push_back(slice.name);
  }

  // What a checkpoint's optimizer had beside those it was made for.
  void add_by_name(const StateList& names) {
    for (const auto& item : names) {
      const std::string* name = item.get_if<std::string>();
      const FlatParameters::Slice* found = nullptr;
      for (const auto& buffer : parameters_.buffers()) {
        for (const auto& slice : buffer.slices) {
          if (name != nullptr && slice.name == *name) found = &slice;
        }
      }
      if (found == nullptr) {
        throw CheckpointError("optimizer {}: the model has no parameter {}", this->name(),
                              name == nullptr ? "without a name" : *name);
      }
      if (!has(found->parameter)) add(*found);
    }
  }

  std::shared_ptr<torch::optim::Optimizer> optimizer_;
  FlatParameters& parameters_;
  TorchOptimizerOptions options_;
  std::vector<bool> was_asleep_;            // each buffer, when the optimizer was made
  std::set<const c10::TensorImpl*> known_;  // parameters of all groups, once it was asked for
  std::vector<std::string> added_;          // parameters that joined later, in that order
  std::vector<double> lr_ratios_;           // each group's to the first's, as they were made
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(std::shared_ptr<torch::optim::Optimizer> optimizer,
                                          FlatParameters& parameters,
                                          const TorchOptimizerOptions& options) {
  if (optimizer == nullptr) throw ConfigError("optimizer: expected a torch optimizer, got null");
  return std::make_unique<TorchOptimizerAdapter>(std::move(optimizer), parameters, options);
}

}  // namespace lockstep::optim

#include "lockstep/optim/describe.h"

#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lockstep/optim/torch_optimizer.h"

namespace lockstep::optim {
namespace {

std::string text_of(Per per) {
  return per == Per::kEpoch ? "epoch" : "batch";
}
std::string text_of(Anneal anneal) {
  return anneal == Anneal::kCos ? "cos" : "linear";
}
template <typename T>
std::string text_of(const T& value) {
  return fmt::format("{}", value);
}
template <typename T>
std::string text_of(const std::optional<T>& value) {
  return value ? text_of(*value) : "none";
}
template <typename T>
std::string text_of(const std::vector<T>& values) {
  return fmt::format("[{}]", fmt::join(values, ", "));
}

// Builds "Name(a=1, b=2)", one field at a time.
class Text {
 public:
  explicit Text(const char* name) : text_(name) {}

  template <typename T>
  Text& with(const char* name, const T& value) {
    text_ += fmt::format("{}{}={}", std::exchange(separator_, ", "), name, text_of(value));
    return *this;
  }
  operator std::string() const { return text_ + (*separator_ == '(' ? "" : ")"); }

 private:
  std::string text_;
  const char* separator_ = "(";
};

struct DescribeOptimizer {
  std::string operator()(std::monostate) const { return "none"; }
  std::string operator()(const Adam& o) const { return adam("Adam", o); }
  std::string operator()(const AdamW& o) const { return adam("AdamW", o); }
  std::string operator()(const SGD& o) const {
    return Text("SGD")
        .with("lr", o.lr)
        .with("momentum", o.momentum)
        .with("dampening", o.dampening)
        .with("weight_decay", o.weight_decay)
        .with("nesterov", o.nesterov);
  }
  std::string operator()(const RMSprop& o) const {
    return Text("RMSprop")
        .with("lr", o.lr)
        .with("alpha", o.alpha)
        .with("eps", o.eps)
        .with("weight_decay", o.weight_decay)
        .with("momentum", o.momentum)
        .with("centered", o.centered);
  }
  std::string operator()(const Adagrad& o) const {
    return Text("Adagrad")
        .with("lr", o.lr)
        .with("lr_decay", o.lr_decay)
        .with("weight_decay", o.weight_decay)
        .with("initial_accumulator_value", o.initial_accumulator_value)
        .with("eps", o.eps);
  }
  std::string operator()(const OptimizerSpec::TorchOptimizer& optimizer) const {
    return optimizer == nullptr ? "none" : describe(*optimizer);
  }
  std::string operator()(const OptimizerSpec::TorchFactory&) const { return "made by a function"; }
  std::string operator()(const OptimizerSpec::Factory&) const { return "made by a function"; }

 private:
  template <typename Options>
  static std::string adam(const char* name, const Options& o) {
    return Text(name)
        .with("lr", o.lr)
        .with("beta1", o.beta1)
        .with("beta2", o.beta2)
        .with("eps", o.eps)
        .with("weight_decay", o.weight_decay)
        .with("amsgrad", o.amsgrad);
  }
};

struct DescribeScheduler {
  std::string operator()(std::monostate) const { return "none"; }
  std::string operator()(const StepLR& o) const {
    return Text("StepLR").with("step_size", o.step_size).with("gamma", o.gamma).with("per", o.per);
  }
  std::string operator()(const MultiStepLR& o) const {
    return Text("MultiStepLR")
        .with("milestones", o.milestones)
        .with("gamma", o.gamma)
        .with("per", o.per);
  }
  std::string operator()(const ExponentialLR& o) const {
    return Text("ExponentialLR").with("gamma", o.gamma).with("per", o.per);
  }
  std::string operator()(const CosineAnnealingLR& o) const {
    return Text("CosineAnnealingLR")
        .with("t_max", o.t_max)
        .with("eta_min", o.eta_min)
        .with("per", o.per);
  }
  std::string operator()(const LinearLR& o) const {
    return Text("LinearLR")
        .with("start_factor", o.start_factor)
        .with("end_factor", o.end_factor)
        .with("total_iters", o.total_iters)
        .with("per", o.per);
  }
  std::string operator()(const OneCycleLR& o) const {
    return Text("OneCycleLR")
        .with("max_lr", o.max_lr)
        .with("total_steps", o.total_steps)
        .with("pct_start", o.pct_start)
        .with("anneal", o.anneal)
        .with("cycle_momentum", o.cycle_momentum)
        .with("base_momentum", o.base_momentum)
        .with("max_momentum", o.max_momentum)
        .with("div_factor", o.div_factor)
        .with("final_div_factor", o.final_div_factor)
        .with("three_phase", o.three_phase)
        .with("per", o.per);
  }
  std::string operator()(const ReduceLROnPlateau& o) const {
    return Text("ReduceLROnPlateau")
        .with("minimize", o.minimize)
        .with("factor", o.factor)
        .with("patience", o.patience)
        .with("threshold", o.threshold)
        .with("threshold_relative", o.threshold_relative)
        .with("cooldown", o.cooldown)
        .with("min_lr", o.min_lr)
        .with("eps", o.eps)
        .with("per", o.per);
  }
  std::string operator()(const FunctionLR& o) const {
    return Text("FunctionLR").with("per", o.per);
  }
  std::string operator()(const SchedulerSpec::SequentialPtr& o) const {
    std::vector<std::string> parts;
    for (const SchedulerSpec& part : o->schedulers) parts.push_back(describe(part));
    return Text("SequentialLR").with("schedulers", parts).with("milestones", o->milestones);
  }
  std::string operator()(const SchedulerSpec::Factory&) const { return "made by a function"; }
};

}  // namespace

std::string describe(const OptimizerSpec& optimizer) {
  return std::visit(DescribeOptimizer{}, optimizer.choice()) + describe(optimizer.settings());
}

std::string describe(const std::vector<ParameterSettings>& settings) {
  std::string text;
  for (const ParameterSettings& some : settings) {
    text += fmt::format(
        " with {}",
        std::string(
            Text(some.names.c_str()).with("lr", some.lr).with("weight_decay", some.weight_decay)));
  }
  return text;
}

std::string describe(const SchedulerSpec& scheduler) {
  return std::visit(DescribeScheduler{}, scheduler.choice());
}

}  // namespace lockstep::optim

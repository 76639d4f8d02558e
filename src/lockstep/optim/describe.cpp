#include "lockstep/optim/describe.h"

#include <fmt/format.h>

#include "lockstep/base/option_text.h"
#include "lockstep/optim/lookahead.h"
#include "lockstep/optim/option_tables.h"
#include "lockstep/optim/torch_optimizer.h"

namespace lockstep::optim {
namespace {

// A value as OptionText takes it.
const char* readable(Per per) {
  return per == Per::kEpoch ? "epoch" : "batch";
}
const char* readable(Anneal anneal) {
  return anneal == Anneal::kCos ? "cos" : "linear";
}
const char* readable(CycleMode mode) {
  if (mode == CycleMode::kTriangular) return "triangular";
  return mode == CycleMode::kTriangular2 ? "triangular2" : "exp_range";
}
template <typename T>
const T& readable(const T& value) {
  return value;
}

template <HasOptionTable Options>
std::string text_of(const Options& options) {
  OptionText text;
  for_each_field<Options>(
      [&](const auto& field) { text.with(field.name, readable(options.*field.member)); });
  return fmt::format("{}({})", OptionTable<Options>::kName, text.str());
}

struct DescribeOptimizer {
  std::string operator()(std::monostate) const { return "none"; }
  template <HasOptionTable Options>
  std::string operator()(const Options& options) const {
    return text_of(options);
  }
  std::string operator()(const OptimizerSpec::LookaheadPtr& o) const {
    return describe_lookahead(*o, describe(o->optimizer));
  }
  std::string operator()(const OptimizerSpec::TorchOptimizer& optimizer) const {
    return optimizer == nullptr ? "none" : describe(*optimizer);
  }
  std::string operator()(const OptimizerSpec::TorchFactory&) const { return "made by a function"; }
  std::string operator()(const OptimizerSpec::Factory&) const { return "made by a function"; }
};

struct DescribeScheduler {
  std::string operator()(std::monostate) const { return "none"; }
  template <HasOptionTable Options>
  std::string operator()(const Options& options) const {
    return text_of(options);
  }
  std::string operator()(const FunctionLR& o) const {
    return fmt::format("FunctionLR({})", OptionText().with("per", readable(o.per)).str());
  }
  std::string operator()(const SchedulerSpec::SequentialPtr& o) const {
    std::vector<std::string> parts;
    for (const SchedulerSpec& part : o->schedulers) parts.push_back(describe(part));
    return fmt::format(
        "SequentialLR({})",
        OptionText().with("schedulers", parts).with("milestones", o->milestones).str());
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
    auto options = OptionText().with("lr", some.lr).with("weight_decay", some.weight_decay);
    if (some.lr_factor) options.with("lr_factor", some.lr_factor);
    if (some.frozen) options.with("frozen", some.frozen);
    text += fmt::format(" with {}({})", some.names, options.str());
  }
  return text;
}

std::string describe(const SchedulerSpec& scheduler) {
  return std::visit(DescribeScheduler{}, scheduler.choice());
}

}  // namespace lockstep::optim

// The options of every optimizer and scheduler by name, with a description of each. One table
// serves configs (recipe), the hyper-parameters in a checkpoint, and the text that ranks compare.
// An option that is missing here is missing in all of them.
#pragma once

#include <tuple>
#include <type_traits>

#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/scheduler.h"
#include "lockstep/state/state_dict.h"

namespace lockstep::optim {

template <typename Options, typename T>
struct OptionField {
  constexpr OptionField(const char* name, T Options::*member, const char* about)
      : name(name), member(member), about(about) {}

  // A config must give it.
  constexpr OptionField required() const {
    OptionField field = *this;
    field.is_required = true;
    return field;
  }

  const char* name;
  T Options::*member;
  const char* about;
  bool is_required = false;
};

// kName: in configs and messages; kAbout: a sentence about it; kFields: a tuple of OptionFields.
template <typename Options>
struct OptionTable;

template <typename Options>
concept HasOptionTable = requires {
  OptionTable<Options>::kFields;
};

// Calls `use` with each field, in their order.
template <HasOptionTable Options, typename Use>
void for_each_field(Use&& use) {
  std::apply([&](const auto&... field) { (use(field), ...); }, OptionTable<Options>::kFields);
}

template <HasOptionTable Options>
StateDict fields_to_state(const Options& options) {
  StateDict state;
  for_each_field<Options>([&](const auto& field) { state.set(field.name, options.*field.member); });
  return state;
}

// Throws CheckpointError for a field that is missing or has another type.
template <HasOptionTable Options>
Options fields_from_state(const StateDict& state) {
  Options options;
  for_each_field<Options>([&](const auto& field) {
    auto& value = options.*field.member;
    value = state.get<std::remove_reference_t<decltype(value)>>(field.name);
  });
  return options;
}

inline constexpr const char* kAboutLr = "learning rate";
inline constexpr const char* kAboutPenalty = "an L2 penalty: added to the gradient";
inline constexpr const char* kAboutEps = "added to the denominator";
inline constexpr const char* kAboutFactor = "what it multiplies by";

// The options of Adam and AdamW, which differ in what weight_decay does.
template <typename Options>
constexpr auto adam_fields(const char* about_decay) {
  return std::tuple(
      OptionField("lr", &Options::lr, kAboutLr),
      OptionField("beta1", &Options::beta1, "decay of the gradient's running mean"),
      OptionField("beta2", &Options::beta2, "decay of the squared gradient's running mean"),
      OptionField("eps", &Options::eps, kAboutEps),
      OptionField("weight_decay", &Options::weight_decay, about_decay),
      OptionField("amsgrad", &Options::amsgrad, "divides by the largest mean so far"));
}

template <>
struct OptionTable<Adam> {
  static constexpr const char* kName = "Adam";
  static constexpr const char* kAbout = "Adaptive moments.";
  static constexpr auto kFields = adam_fields<Adam>(kAboutPenalty);
};

template <>
struct OptionTable<AdamW> {
  static constexpr const char* kName = "AdamW";
  static constexpr const char* kAbout = "Adam with weight decay separate from the gradient.";
  static constexpr auto kFields = adam_fields<AdamW>("applied to the weights directly");
};

template <>
struct OptionTable<SGD> {
  static constexpr const char* kName = "SGD";
  static constexpr const char* kAbout = "Gradient descent, with optional momentum.";
  static constexpr auto kFields = std::tuple(
      OptionField("lr", &SGD::lr, kAboutLr), OptionField("momentum", &SGD::momentum, "0: none"),
      OptionField("dampening", &SGD::dampening,
                  "reduces the gradient that is added to the momentum"),
      OptionField("weight_decay", &SGD::weight_decay, kAboutPenalty),
      OptionField("nesterov", &SGD::nesterov, "needs momentum, and no dampening"));
};

template <>
struct OptionTable<RMSprop> {
  static constexpr const char* kName = "RMSprop";
  static constexpr const char* kAbout = "Divides by a running mean of the gradient's size.";
  static constexpr auto kFields = std::tuple(
      OptionField("lr", &RMSprop::lr, kAboutLr),
      OptionField("alpha", &RMSprop::alpha, "decay of the squared gradient's running mean"),
      OptionField("eps", &RMSprop::eps, kAboutEps),
      OptionField("weight_decay", &RMSprop::weight_decay, kAboutPenalty),
      OptionField("momentum", &RMSprop::momentum, "0: none"),
      OptionField("centered", &RMSprop::centered,
                  "divides by the variance instead of the mean square"));
};

template <>
struct OptionTable<Adagrad> {
  static constexpr const char* kName = "Adagrad";
  static constexpr const char* kAbout = "Divides by the size of all gradients so far.";
  static constexpr auto kFields = std::tuple(
      OptionField("lr", &Adagrad::lr, kAboutLr),
      OptionField("lr_decay", &Adagrad::lr_decay, "step t uses lr / (1 + (t - 1) lr_decay)"),
      OptionField("weight_decay", &Adagrad::weight_decay, kAboutPenalty),
      OptionField("initial_accumulator_value", &Adagrad::initial_accumulator_value,
                  "the sum of squares starts from it"),
      OptionField("eps", &Adagrad::eps, kAboutEps));
};

inline constexpr const char* kAboutMean = "decay of the gradient's running mean";
inline constexpr const char* kAboutSquare = "decay of the squared gradient's running mean";
inline constexpr const char* kAboutShrink = "applied to the weights directly";

template <>
struct OptionTable<RAdam> {
  static constexpr const char* kName = "RAdam";
  static constexpr const char* kAbout =
      "Adam that begins with plain momentum, until its variance is known.";
  static constexpr auto kFields = std::tuple(
      OptionField("lr", &RAdam::lr, kAboutLr), OptionField("beta1", &RAdam::beta1, kAboutMean),
      OptionField("beta2", &RAdam::beta2, kAboutSquare), OptionField("eps", &RAdam::eps, kAboutEps),
      OptionField("weight_decay", &RAdam::weight_decay, kAboutPenalty));
};

template <>
struct OptionTable<NAdam> {
  static constexpr const char* kName = "NAdam";
  static constexpr const char* kAbout = "Adam with Nesterov's momentum.";
  static constexpr auto kFields = std::tuple(
      OptionField("lr", &NAdam::lr, kAboutLr), OptionField("beta1", &NAdam::beta1, kAboutMean),
      OptionField("beta2", &NAdam::beta2, kAboutSquare), OptionField("eps", &NAdam::eps, kAboutEps),
      OptionField("weight_decay", &NAdam::weight_decay, kAboutPenalty),
      OptionField("momentum_decay", &NAdam::momentum_decay,
                  "how fast the momentum rises to beta1"));
};

template <>
struct OptionTable<Adamax> {
  static constexpr const char* kName = "Adamax";
  static constexpr const char* kAbout = "Adam that divides by the largest gradient.";
  static constexpr auto kFields = std::tuple(
      OptionField("lr", &Adamax::lr, kAboutLr), OptionField("beta1", &Adamax::beta1, kAboutMean),
      OptionField("beta2", &Adamax::beta2, "decay of the largest gradient"),
      OptionField("eps", &Adamax::eps, "added to the gradient's size"),
      OptionField("weight_decay", &Adamax::weight_decay, kAboutPenalty));
};

template <>
struct OptionTable<Adadelta> {
  static constexpr const char* kName = "Adadelta";
  static constexpr const char* kAbout = "Steps as large as the previous ones.";
  static constexpr auto kFields =
      std::tuple(OptionField("lr", &Adadelta::lr, kAboutLr),
                 OptionField("rho", &Adadelta::rho, "decay of both running means"),
                 OptionField("eps", &Adadelta::eps, "added to both means"),
                 OptionField("weight_decay", &Adadelta::weight_decay, kAboutPenalty));
};

template <>
struct OptionTable<Lion> {
  static constexpr const char* kName = "Lion";
  static constexpr const char* kAbout = "Steps of the same size for every element.";
  static constexpr auto kFields =
      std::tuple(OptionField("lr", &Lion::lr, kAboutLr),
                 OptionField("beta1", &Lion::beta1, "weight of the momentum in a step"),
                 OptionField("beta2", &Lion::beta2, "decay of the momentum"),
                 OptionField("weight_decay", &Lion::weight_decay, kAboutShrink));
};

template <>
struct OptionTable<Lamb> {
  static constexpr const char* kName = "Lamb";
  static constexpr const char* kAbout =
      "Adam for large batches: each parameter's step is as long as the parameter, times lr.";
  static constexpr auto kFields = std::tuple(
      OptionField("lr", &Lamb::lr, kAboutLr), OptionField("beta1", &Lamb::beta1, kAboutMean),
      OptionField("beta2", &Lamb::beta2, kAboutSquare), OptionField("eps", &Lamb::eps, kAboutEps),
      OptionField("weight_decay", &Lamb::weight_decay, "added to the step, before it is scaled"),
      OptionField("bias_correction", &Lamb::bias_correction,
                  "of the running means, which begin with zero"),
      OptionField("max_weight_norm", &Lamb::max_weight_norm,
                  "larger norms of a parameter count as this"));
};

template <typename Options>
constexpr auto per_field() {
  return OptionField("per", &Options::per, "whether a step is made every epoch or every batch");
}

template <>
struct OptionTable<StepLR> {
  static constexpr const char* kName = "StepLR";
  static constexpr const char* kAbout = "Multiplies by gamma every step_size steps.";
  static constexpr auto kFields = std::tuple(
      OptionField("step_size", &StepLR::step_size, "steps between two changes").required(),
      OptionField("gamma", &StepLR::gamma, kAboutFactor), per_field<StepLR>());
};

template <>
struct OptionTable<MultiStepLR> {
  static constexpr const char* kName = "MultiStepLR";
  static constexpr const char* kAbout = "Multiplies by gamma at each milestone.";
  static constexpr auto kFields = std::tuple(
      OptionField("milestones", &MultiStepLR::milestones, "in steps; 1 is after the first step")
          .required(),
      OptionField("gamma", &MultiStepLR::gamma, kAboutFactor), per_field<MultiStepLR>());
};

template <>
struct OptionTable<ExponentialLR> {
  static constexpr const char* kName = "ExponentialLR";
  static constexpr const char* kAbout = "Multiplies by gamma in every step.";
  static constexpr auto kFields =
      std::tuple(OptionField("gamma", &ExponentialLR::gamma, kAboutFactor).required(),
                 per_field<ExponentialLR>());
};

template <>
struct OptionTable<CosineAnnealingLR> {
  static constexpr const char* kName = "CosineAnnealingLR";
  static constexpr const char* kAbout = "Half a cosine down to eta_min.";
  static constexpr auto kFields = std::tuple(
      OptionField("t_max", &CosineAnnealingLR::t_max,
                  "steps to eta_min; default: all steps of the run"),
      OptionField("eta_min", &CosineAnnealingLR::eta_min, "the learning rate at the end"),
      per_field<CosineAnnealingLR>());
};

template <>
struct OptionTable<LinearLR> {
  static constexpr const char* kName = "LinearLR";
  static constexpr const char* kAbout = "A warm-up, in equal steps.";
  static constexpr auto kFields = std::tuple(
      OptionField("start_factor", &LinearLR::start_factor, "of the learning rate at first"),
      OptionField("end_factor", &LinearLR::end_factor, "of the learning rate at the end"),
      OptionField("total_iters", &LinearLR::total_iters, "steps to end_factor"),
      per_field<LinearLR>());
};

template <>
struct OptionTable<PolynomialLR> {
  static constexpr const char* kName = "PolynomialLR";
  static constexpr const char* kAbout = "Down to zero, as a power of the steps that are left.";
  static constexpr auto kFields = std::tuple(
      OptionField("total_iters", &PolynomialLR::total_iters,
                  "steps to zero; default: all steps of the run"),
      OptionField("power", &PolynomialLR::power, "1: in equal steps"), per_field<PolynomialLR>());
};

template <>
struct OptionTable<CosineAnnealingWarmRestarts> {
  static constexpr const char* kName = "CosineAnnealingWarmRestarts";
  static constexpr const char* kAbout = "Half a cosine down to eta_min, again and again.";
  static constexpr auto kFields = std::tuple(
      OptionField("t_0", &CosineAnnealingWarmRestarts::t_0, "steps of the first cycle").required(),
      OptionField("t_mult", &CosineAnnealingWarmRestarts::t_mult,
                  "a cycle is this many times as long as the one before"),
      OptionField("eta_min", &CosineAnnealingWarmRestarts::eta_min,
                  "the learning rate at the end of a cycle"),
      per_field<CosineAnnealingWarmRestarts>());
};

template <>
struct OptionTable<CyclicLR> {
  static constexpr const char* kName = "CyclicLR";
  static constexpr const char* kAbout = "From base_lr up to max_lr and down again.";
  static constexpr auto kFields = std::tuple(
      OptionField("base_lr", &CyclicLR::base_lr,
                  "the smallest learning rate; default: the optimizer's"),
      OptionField("max_lr", &CyclicLR::max_lr, "the largest one").required(),
      OptionField("step_size_up", &CyclicLR::step_size_up, "steps from base_lr to max_lr"),
      OptionField("step_size_down", &CyclicLR::step_size_down, "steps back; default: step_size_up"),
      OptionField("mode", &CyclicLR::mode,
                  "the height of the cycles: equal, halved with each, or times gamma in each step"),
      OptionField("gamma", &CyclicLR::gamma, "for exp_range"),
      OptionField("cycle_momentum", &CyclicLR::cycle_momentum,
                  "momentum falls as lr rises; needs an optimizer with it"),
      OptionField("base_momentum", &CyclicLR::base_momentum, "momentum at max_lr"),
      OptionField("max_momentum", &CyclicLR::max_momentum, "momentum at base_lr"),
      per_field<CyclicLR>());
};

template <>
struct OptionTable<OneCycleLR> {
  static constexpr const char* kName = "OneCycleLR";
  static constexpr const char* kAbout = "Up to max_lr, then down to almost zero.";
  static constexpr auto kFields = std::tuple(
      OptionField("max_lr", &OneCycleLR::max_lr, "the largest learning rate").required(),
      OptionField("total_steps", &OneCycleLR::total_steps, "default: all steps of the run"),
      OptionField("pct_start", &OneCycleLR::pct_start, "the part of the cycle in which it rises"),
      OptionField("anneal", &OneCycleLR::anneal, "the curve between two learning rates"),
      OptionField("cycle_momentum", &OneCycleLR::cycle_momentum,
                  "momentum falls as lr rises; needs an optimizer with it"),
      OptionField("base_momentum", &OneCycleLR::base_momentum, "momentum at max_lr"),
      OptionField("max_momentum", &OneCycleLR::max_momentum, "momentum at both ends"),
      OptionField("div_factor", &OneCycleLR::div_factor,
                  "the first learning rate is max_lr / div_factor"),
      OptionField("final_div_factor", &OneCycleLR::final_div_factor,
                  "the last one is the first / final_div_factor"),
      OptionField("three_phase", &OneCycleLR::three_phase,
                  "falls as it rose, and then in a third phase to the end"),
      per_field<OneCycleLR>());
};

template <>
struct OptionTable<ReduceLROnPlateau> {
  static constexpr const char* kName = "ReduceLROnPlateau";
  static constexpr const char* kAbout = "Multiplies by factor when the metric stops improving.";
  static constexpr auto kFields = std::tuple(
      OptionField("minimize", &ReduceLROnPlateau::minimize,
                  "whether smaller is better; default: the metric's own direction"),
      OptionField("factor", &ReduceLROnPlateau::factor, kAboutFactor),
      OptionField("patience", &ReduceLROnPlateau::patience,
                  "steps without improvement that are tolerated"),
      OptionField("threshold", &ReduceLROnPlateau::threshold,
                  "the smallest change that counts as an improvement"),
      OptionField("threshold_relative", &ReduceLROnPlateau::threshold_relative,
                  "threshold is relative to the best metric; else absolute"),
      OptionField("cooldown", &ReduceLROnPlateau::cooldown,
                  "steps after a reduction that do not count"),
      OptionField("min_lr", &ReduceLROnPlateau::min_lr, "the smallest learning rate"),
      OptionField("eps", &ReduceLROnPlateau::eps, "a reduction smaller than this is not made"),
      per_field<ReduceLROnPlateau>());
};

}  // namespace lockstep::optim

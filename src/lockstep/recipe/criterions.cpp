// Losses, with PyTorch's names and defaults; every one is a mean over the batch.
#include <optional>

#include <torch/nn/modules/loss.h>

#include "lockstep/recipe/targets.h"
#include "lockstep/train/nt_xent_loss.h"

namespace lockstep::recipe {
namespace {

namespace nn = torch::nn;

torch::Tensor class_weights(const std::vector<double>& values) {
  return values.empty() ? torch::Tensor() : torch::tensor(values, torch::kFloat32);
}

struct CrossEntropyOptions {
  std::vector<double> weight;
  std::int64_t ignore_index = -100;
  double label_smoothing = 0.0;
};

struct NllOptions {
  std::vector<double> weight;
  std::int64_t ignore_index = -100;
};

struct SmoothL1Options {
  double beta = 1.0;
};

struct HuberOptions {
  double delta = 1.0;
};

struct BceLogitsOptions {
  std::vector<double> pos_weight;
};

template <typename Module>
void add_plain(Targets& targets, const std::string& name, const std::string& about) {
  targets.criterions.add(name, about, [] { return Criterion(Module()); });
}

}  // namespace

void add_criterions(Targets& targets) {
  using C = CrossEntropyOptions;
  targets.criterions.add<C>(
      "CrossEntropyLoss", "For scores [N, C] and classes [N].",
      {{"weight", &C::weight, "of each class; default: all the same"},
       {"ignore_index", &C::ignore_index, "a class that does not count"},
       {"label_smoothing", &C::label_smoothing,
        "the part of the target that is spread over all classes"}},
      [](const C& o) {
        if (!(o.label_smoothing >= 0 && o.label_smoothing <= 1)) {
          throw ConfigError("label_smoothing: expected a number in [0, 1], got {}",
                            o.label_smoothing);
        }
        return Criterion(nn::CrossEntropyLoss(nn::CrossEntropyLossOptions()
                                                  .weight(class_weights(o.weight))
                                                  .ignore_index(o.ignore_index)
                                                  .label_smoothing(o.label_smoothing)));
      });
  using N = NllOptions;
  targets.criterions.add<N>(
      "NLLLoss", "For log-probabilities [N, C] and classes [N].",
      {{"weight", &N::weight, "of each class; default: all the same"},
       {"ignore_index", &N::ignore_index, "a class that does not count"}},
      [](const N& o) {
        return Criterion(nn::NLLLoss(
            nn::NLLLossOptions().weight(class_weights(o.weight)).ignore_index(o.ignore_index)));
      });
  add_plain<nn::MSELoss>(targets, "MSELoss", "The mean square of the difference.");
  add_plain<nn::L1Loss>(targets, "L1Loss", "The mean absolute difference.");
  using S = SmoothL1Options;
  targets.criterions.add<S>(
      "SmoothL1Loss", "Square for small differences, L1 for large ones.",
      {{"beta", &S::beta, "the difference at which it changes"}}, [](const S& o) {
        return Criterion(nn::SmoothL1Loss(nn::SmoothL1LossOptions().beta(o.beta)));
      });
  using H = HuberOptions;
  targets.criterions.add<H>(
      "HuberLoss", "SmoothL1Loss times delta.",
      {{"delta", &H::delta, "the difference at which it changes"}},
      [](const H& o) { return Criterion(nn::HuberLoss(nn::HuberLossOptions().delta(o.delta))); });
  using B = BceLogitsOptions;
  targets.criterions.add<B>(
      "BCEWithLogitsLoss", "For scores and targets in [0, 1] of the same shape.",
      {{"pos_weight", &B::pos_weight, "weight of targets that are 1; default: 1"}}, [](const B& o) {
        return Criterion(nn::BCEWithLogitsLoss(
            nn::BCEWithLogitsLossOptions().pos_weight(class_weights(o.pos_weight))));
      });
  add_plain<nn::BCELoss>(targets, "BCELoss", "For probabilities and targets in [0, 1].");
  using X = NTXentLossOptions;
  targets.criterions.add<X>(
      "NTXentLoss",
      "Contrastive, for two projections [N, D]: that of SimCLR. For a SelfSupervisedRunner.",
      {{"temperature", &X::temperature, "similarities are divided by it"}},
      [](const X& o) { return Criterion(NTXentLoss(o)); });
}

}  // namespace lockstep::recipe

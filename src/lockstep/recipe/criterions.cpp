// Losses: LibTorch's, with PyTorch's names and defaults, and those of loss/. Every one is a mean.
#include <optional>

#include <torch/nn/modules/loss.h>

#include "lockstep/loss/embedding_loss.h"
#include "lockstep/loss/focal_loss.h"
#include "lockstep/loss/nt_xent_loss.h"
#include "lockstep/loss/overlap_loss.h"
#include "lockstep/recipe/targets.h"
#include "lockstep/recipe/values.h"

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
  bool over_samples = false;
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

struct KLDivOptions {
  bool log_target = false;
};

template <typename Module>
void add_plain(Targets& targets, const std::string& name, const std::string& about) {
  targets.criterions.add(name, about, [] { return Criterion(Module()); });
}

void add_focal(Targets& targets) {
  using F = FocalLossOptions;
  targets.criterions.add<F>(
      "FocalLoss",
      "Cross entropy in which what is right already counts less: scores [N, C, …], classes [N, …].",
      {{"gamma", &F::gamma, "how much less; 0: cross entropy"},
       {"weight", &F::weight, "of each class; default: all the same"},
       {"ignore_index", &F::ignore_index, "a class that does not count"}},
      [](const F& o) { return Criterion(FocalLoss(o)); });
  using B = BinaryFocalLossOptions;
  targets.criterions.add<B>(
      "BinaryFocalLoss", "The same for scores and targets in [0, 1] of one shape.",
      {{"gamma", &B::gamma, "how much less; 0: binary cross entropy"},
       {"alpha", &B::alpha, "weight of targets that are 1, others have 1 - alpha"}},
      [](const B& o) { return Criterion(BinaryFocalLoss(o)); });
}

std::vector<config::Field<OverlapLossOptions>> overlap_fields() {
  using O = OverlapLossOptions;
  return {{"probabilities", &O::probabilities, "how scores become probabilities"},
          {"smooth", &O::smooth, "so that an empty class is no division by zero"},
          {"batch", &O::batch, "one number for all samples of a shard; else one for each sample"},
          {"weight", &O::weight, "of each class; default: all the same"},
          {"ignore_index", &O::ignore_index, "pixels of this class do not count"}};
}

void add_overlap(Targets& targets) {
  using O = OverlapLossOptions;
  targets.criterions.add<O>("DiceLoss",
                            "1 - the Dice coefficient: scores [N, C, …], classes [N, …] or shares.",
                            overlap_fields(), [](const O& o) { return Criterion(DiceLoss(o)); });
  targets.criterions.add<O>("IoULoss", "1 - intersection over union, as DiceLoss.",
                            overlap_fields(), [](const O& o) { return Criterion(IoULoss(o)); });
  using T = TverskyLossOptions;
  std::vector<config::Field<T>> fields;
  for (const auto& field : overlap_fields()) fields.push_back(field.inside(&T::overlap));
  fields.push_back({"false_positives", &T::false_positives, "their weight"});
  fields.push_back({"false_negatives", &T::false_negatives, "their weight"});
  fields.push_back({"gamma", &T::gamma, "4/3: focal Tversky; the loss is raised to 1 / gamma"});
  targets.criterions.add<T>("TverskyLoss", "DiceLoss with weights of both kinds of errors.", fields,
                            [](const T& o) { return Criterion(TverskyLoss(o)); });
}

void add_embedding(Targets& targets) {
  using C = ContrastiveLossOptions;
  targets.criterions.add<C>(
      "ContrastiveLoss", "Of the distances of all pairs of a shard: embeddings [N, D], labels [N].",
      {{"margin", &C::margin, "from which on two labels are far enough from each other"}},
      [](const C& o) { return Criterion(ContrastiveLoss(o)); });
  using T = TripletLossOptions;
  targets.criterions.add<T>(
      "TripletLoss", "Another label is farther away than the same one: embeddings, labels.",
      {{"margin", &T::margin, "by which it is farther away"},
       {"mining", &T::mining, "the hardest triplet of each sample, or all within the margin"}},
      [](const T& o) { return Criterion(TripletLoss(o)); });
  using M = MarginLossOptions;
  targets.criterions.add<M>(
      "MarginLoss", "Pairs are nearer or farther than beta, by their labels: embeddings, labels.",
      {{"beta", &M::beta, "the distance between near and far"},
       {"alpha", &M::alpha, "the margin on both sides of it"}},
      [](const M& o) { return Criterion(MarginLoss(o)); });
  using S = SupervisedContrastiveLossOptions;
  targets.criterions.add<S>("SupervisedContrastiveLoss",
                            "NTXentLoss with labels: embeddings [N, D], labels [N].",
                            {{"temperature", &S::temperature, "similarities are divided by it"}},
                            [](const S& o) { return Criterion(SupervisedContrastiveLoss(o)); });
  using B = BarlowTwinsLossOptions;
  targets.criterions.add<B>(
      "BarlowTwinsLoss",
      "Of the correlations of two projections [N, D]. For a SelfSupervisedRunner.",
      {{"off_diagonal", &B::off_diagonal, "weight of correlations between different features"},
       {"eps", &B::eps, "added to the variance of a feature"}},
      [](const B& o) { return Criterion(BarlowTwinsLoss(o)); });
}

}  // namespace

void add_criterions(Targets& targets) {
  using C = CrossEntropyOptions;
  targets.criterions.add<C>(
      "CrossEntropyLoss", "For scores [N, C] and classes [N].",
      {{"weight", &C::weight, "of each class; default: all the same"},
       {"ignore_index", &C::ignore_index, "a class that does not count"},
       {"label_smoothing", &C::label_smoothing,
        "the part of the target that is spread over all classes"},
       {"over_samples", &C::over_samples,
        "a mean over samples, to be added to a DiceLoss; needs targets that all count"}},
      [](const C& o) {
        if (!(o.label_smoothing >= 0 && o.label_smoothing <= 1)) {
          throw ConfigError("label_smoothing: expected a number in [0, 1], got {}",
                            o.label_smoothing);
        }
        const Criterion loss = nn::CrossEntropyLoss(nn::CrossEntropyLossOptions()
                                                        .weight(class_weights(o.weight))
                                                        .ignore_index(o.ignore_index)
                                                        .label_smoothing(o.label_smoothing));
        return o.over_samples ? loss.over_samples() : loss;
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
  using K = KLDivOptions;
  targets.criterions.add<K>(
      "KLDivLoss", "For log-probabilities [N, C] and probabilities of the same shape.",
      {{"log_target", &K::log_target, "whether the targets are log-probabilities, too"}},
      [](const K& o) {
        return Criterion(nn::KLDivLoss(
            nn::KLDivLossOptions().reduction(torch::kBatchMean).log_target(o.log_target)));
      });
  add_plain<nn::PoissonNLLLoss>(targets, "PoissonNLLLoss", "For logarithms of rates, and counts.");
  add_plain<nn::MultiLabelSoftMarginLoss>(targets, "MultiLabelSoftMarginLoss",
                                          "For scores and targets in {0, 1}, both [N, C].");
  add_plain<nn::MultiMarginLoss>(targets, "MultiMarginLoss",
                                 "A hinge loss for scores [N, C] and classes [N].");
  add_focal(targets);
  add_overlap(targets);
  add_embedding(targets);
}

}  // namespace lockstep::recipe

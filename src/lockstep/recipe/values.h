// How a config writes the types of Lockstep's options. Values that have a name are written as text;
// objects that are built are written as targets.
#pragma once

#include <string>
#include <variant>

#include "lockstep/base/named.h"
#include "lockstep/base/precision.h"
#include "lockstep/callback/batch_transform.h"
#include "lockstep/callback/checkpoint.h"
#include "lockstep/callback/gradient_norms.h"
#include "lockstep/callback/lr_finder.h"
#include "lockstep/callback/metric_aggregation.h"
#include "lockstep/callback/multilabel.h"
#include "lockstep/config/value.h"
#include "lockstep/log/logger.h"
#include "lockstep/log/progress_bar.h"
#include "lockstep/loss/embedding_loss.h"
#include "lockstep/loss/overlap_loss.h"
#include "lockstep/optim/grad_scaler.h"
#include "lockstep/optim/scheduler.h"
#include "lockstep/recipe/targets.h"
#include "lockstep/train/phase.h"
#include "lockstep/train/restore.h"
#include "lockstep/train/state.h"
#include "lockstep/train/supervised_keys.h"
#include "lockstep/train/weights.h"

namespace lockstep::config {

template <>
struct EnumNames<optim::Per> {
  static constexpr std::pair<optim::Per, const char*> names[] = {{optim::Per::kEpoch, "epoch"},
                                                                 {optim::Per::kBatch, "batch"}};
};

template <>
struct EnumNames<optim::Anneal> {
  static constexpr std::pair<optim::Anneal, const char*> names[] = {
      {optim::Anneal::kCos, "cos"}, {optim::Anneal::kLinear, "linear"}};
};

template <>
struct EnumNames<optim::CycleMode> {
  static constexpr std::pair<optim::CycleMode, const char*> names[] = {
      {optim::CycleMode::kTriangular, "triangular"},
      {optim::CycleMode::kTriangular2, "triangular2"},
      {optim::CycleMode::kExpRange, "exp_range"}};
};

template <>
struct EnumNames<Probabilities> {
  static constexpr std::pair<Probabilities, const char*> names[] = {
      {Probabilities::kSoftmax, "softmax"},
      {Probabilities::kSigmoid, "sigmoid"},
      {Probabilities::kNone, "none"}};
};

template <>
struct EnumNames<TripletMining> {
  static constexpr std::pair<TripletMining, const char*> names[] = {{TripletMining::kHard, "hard"},
                                                                    {TripletMining::kAll, "all"}};
};

template <>
struct EnumNames<CheckpointMode> {
  static constexpr std::pair<CheckpointMode, const char*> names[] = {
      {CheckpointMode::kFull, "full"},
      {CheckpointMode::kModel, "model"},
      {CheckpointMode::kNone, "none"}};
};

template <>
struct EnumNames<ProgressBars> {
  static constexpr std::pair<ProgressBars, const char*> names[] = {
      {ProgressBars::kPasses, "passes"}, {ProgressBars::kRun, "run"}};
};

template <>
struct EnumNames<LRScale> {
  static constexpr std::pair<LRScale, const char*> names[] = {{LRScale::kLog, "log"},
                                                              {LRScale::kLinear, "linear"}};
};

template <>
struct EnumNames<NormsBy> {
  static constexpr std::pair<NormsBy, const char*> names[] = {{NormsBy::kParameter, "parameter"},
                                                              {NormsBy::kModule, "module"}};
};

template <>
struct EnumNames<AggregationMode> {
  static constexpr std::pair<AggregationMode, const char*> names[] = {
      {AggregationMode::kSum, "sum"},
      {AggregationMode::kMean, "mean"},
      {AggregationMode::kWeightedSum, "weighted_sum"},
      {AggregationMode::kWeightedMean, "weighted_mean"}};
};

template <>
struct EnumNames<MetricScope> {
  static constexpr std::pair<MetricScope, const char*> names[] = {{MetricScope::kBatch, "batch"},
                                                                  {MetricScope::kLoader, "loader"}};
};

template <>
struct EnumNames<BatchScope> {
  static constexpr std::pair<BatchScope, const char*> names[] = {
      {BatchScope::kBatchStart, "on_batch_start"}, {BatchScope::kForward, "on_forward"}};
};

template <>
struct EnumNames<metric::ScoreKind> {
  static constexpr std::pair<metric::ScoreKind, const char*> names[] = {
      {metric::ScoreKind::kLogits, "logits"}, {metric::ScoreKind::kProbabilities, "probabilities"}};
};

// "valid/loss": a loader and one of its metrics. The metric's name may contain slashes.
template <>
struct Value<MetricKey> {
  static std::string type() { return "loader/metric"; }
  static MetricKey read(const Node& node);
  static std::string show(const MetricKey& key) { return key.loader + "/" + key.metric; }
};

template <>
struct Value<HParam> {
  static std::string type() { return "true, false, number or text"; }
  static HParam read(const Node& node);
  static std::string show(const HParam& value);
};

template <>
struct Value<HParams> {
  static std::string type() { return "mapping of names to values"; }
  static HParams read(const Node& node);
  static std::string show(const HParams&) { return "{}"; }
};

template <>
struct Value<Wire> {
  static std::string type() { return "fp32 or bf16"; }
  static Wire read(const Node& node);
  static std::string show(const Wire& wire) { return wire.name(); }
};

template <>
struct Value<Precision> {
  static std::string type() { return "fp32, bf16 or fp16"; }
  static Precision read(const Node& node);
  static std::string show(const Precision& precision) { return precision.name(); }
};

// A mapping of its fields.
template <>
struct Value<optim::GradScalerOptions> {
  static std::string type() {
    return "grad scaler (init_scale, growth_factor, backoff_factor, growth_interval, enabled)";
  }
  static optim::GradScalerOptions read(const Node& node);
  static std::string show(const optim::GradScalerOptions& options) {
    return fmt::format("{{init_scale: {}}}", show_double(options.init_scale));
  }
};

// A path, or a mapping of its fields.
template <>
struct Value<Weights> {
  static std::string type() {
    return "path, or path, strict, remove_prefix, rename, add_prefix and skip";
  }
  static Weights read(const Node& node);
  static std::string show(const Weights& weights) {
    return weights ? show_text(weights.path().string()) : "";
  }
};

template <>
struct Value<Named<Weights>> {
  static std::string type() { return "mapping of networks to weights"; }
  static Named<Weights> read(const Node& node);
  static std::string show(const Named<Weights>&) { return "{}"; }
};

// A mapping of its fields.
template <>
struct Value<RestoreOptions> {
  static std::string type() { return "paths of checkpoints (optimizer, scheduler, criterion)"; }
  static RestoreOptions read(const Node& node);
  static std::string show(const RestoreOptions&) { return "{}"; }
};

template <>
struct Value<torch::Device> {
  static std::string type() { return "device, such as cpu or cuda:0"; }
  static torch::Device read(const Node& node);
  static std::string show(const torch::Device& device) { return device.str(); }
};

// A chain of transforms may be written as a list.
template <>
struct Value<data::TransformPtr> {
  static std::string type() { return "transform"; }
  static data::TransformPtr read(const Node& node);
  static std::string show(const data::TransformPtr&) { return ""; }
};

// As in a list of transforms, each changes the batch of the one before it.
template <>
struct Value<data::BatchTransform> {
  static std::string type() { return "batch transform"; }
  static data::BatchTransform read(const Node& node);
  static std::string show(const data::BatchTransform&) { return ""; }
};

template <>
struct Value<data::DatasetPtr> {
  static std::string type() { return "dataset"; }
  static data::DatasetPtr read(const Node& node);
  static std::string show(const data::DatasetPtr&) { return ""; }
};

template <>
struct Value<Criterion> {
  static std::string type() { return "criterion"; }
  static Criterion read(const Node& node);
  static std::string show(const Criterion&) { return ""; }
};

template <>
struct Value<CallbackPtr> {
  static std::string type() { return "callback"; }
  static CallbackPtr read(const Node& node);
  static std::string show(const CallbackPtr&) { return ""; }
};

// A mapping of its fields.
template <>
struct Value<LossTerm> {
  static std::string type() { return "loss (criterion, output, target, weight, name)"; }
  static LossTerm read(const Node& node);
  static std::string show(const LossTerm& term) { return term.name; }
};

// A name, or a mapping of its fields.
template <>
struct Value<Phase> {
  static std::string type() { return "phase (a name, or name, optimizers, every)"; }
  static Phase read(const Node& node);
  static std::string show(const Phase& phase) { return phase.name; }
};

template <>
struct Value<optim::OptimizerSpec> {
  static std::string type() { return "optimizer"; }
  static optim::OptimizerSpec read(const Node& node);
  static std::string show(const optim::OptimizerSpec&) { return ""; }
};

template <>
struct Value<optim::SchedulerSpec> {
  static std::string type() { return "scheduler"; }
  static optim::SchedulerSpec read(const Node& node);
  static std::string show(const optim::SchedulerSpec&) { return ""; }
};

// A node that is kept as it is and built later, when more is known.
template <>
struct Value<Node> {
  static std::string type() { return "anything"; }
  static Node read(const Node& node) { return node; }
  static std::string show(const Node&) { return ""; }
};

}  // namespace lockstep::config

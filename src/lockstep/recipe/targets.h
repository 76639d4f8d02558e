// The targets that a config can name by _target_: those of Lockstep, and those that users add in a
// plugin (plugin.h), or in their own program before it calls command_main:
//
//   struct WideNetOptions { std::int64_t width = 64; };
//   ls::recipe::targets().models.add<WideNetOptions>(
//       "WideNet", "Two wide layers.",
//       {{"width", &WideNetOptions::width, "of the hidden layer"}},
//       [](const WideNetOptions& o) { return ls::Model(WideNet(o.width)); });
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <torch/nn/modules/container/any.h>

#include "lockstep/config/registry.h"
#include "lockstep/data/batch.h"
#include "lockstep/data/batch_transform.h"
#include "lockstep/data/collate.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/sampler.h"
#include "lockstep/data/transform.h"
#include "lockstep/engine/engine.h"
#include "lockstep/log/logger.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/scheduler.h"
#include "lockstep/runner/runner.h"
#include "lockstep/train/callback.h"
#include "lockstep/train/criterion.h"
#include "lockstep/train/model.h"

namespace lockstep::recipe {

using SamplerPtr = std::shared_ptr<const data::Sampler>;
using EnginePtr = std::shared_ptr<Engine>;
using RunnerPtr = std::shared_ptr<Runner>;
using LoggerPtr = std::shared_ptr<Logger>;

// The data that a model is built for: the first sample of the first loader, as a batch of one.
// Sizes that a config leaves out are taken from it.
struct Example {
  Batch batch;
  // The first input of the model. Undefined if the runner is of another class than SupervisedRunner
  // and SelfSupervisedRunner, or if the input is not a tensor.
  torch::Tensor input;
  // How many classes the data set has, if it knows.
  std::optional<std::int64_t> classes = {};
};

// The data that a sampler is made for. Samplers that need only the number of samples take an
// integer instead.
struct SampledData {
  SampledData(std::int64_t samples) : size(samples) {}
  explicit SampledData(data::DatasetPtr data, std::int64_t loader_batch_size)
      : size(data->size()), dataset(std::move(data)), batch_size(loader_batch_size) {}
  operator std::int64_t() const { return size; }

  std::int64_t size;
  data::DatasetPtr dataset = nullptr;  // null if only the number of samples is known
  std::int64_t batch_size = 1;         // global_batch_size of the loader, or else its batch_size
};

struct Targets {
  // A layer is made for the output of the layer before it.
  config::Registry<torch::nn::AnyModule, const torch::Tensor&> layers{"layer"};
  config::Registry<Model, const Example&> models{"model"};
  config::Registry<Criterion> criterions{"criterion"};
  config::Registry<optim::OptimizerSpec> optimizers{"optimizer"};
  config::Registry<optim::SchedulerSpec> schedulers{"scheduler"};
  config::Registry<data::DatasetPtr> datasets{"dataset"};
  config::Registry<data::TransformPtr> transforms{"transform"};
  config::Registry<data::BatchTransform> batch_transforms{"batch transform"};
  config::Registry<SamplerPtr, const SampledData&> samplers{"sampler"};
  config::Registry<data::Collate> collates{"collate"};
  config::Registry<CallbackPtr> callbacks{"callback"};
  config::Registry<LoggerPtr> loggers{"logger"};
  config::Registry<EnginePtr> engines{"engine"};
  config::Registry<RunnerPtr> runners{"runner"};

  // All targets, kind by kind.
  std::vector<config::TargetInfo> all() const;
};

// The targets of this process. Those of Lockstep are in it from the start.
Targets& targets();

// Each fills its registries. targets() calls all of them once.
void add_layers(Targets& targets);
void add_models(Targets& targets);
void add_criterions(Targets& targets);
void add_optimizers(Targets& targets);
void add_schedulers(Targets& targets);
void add_datasets(Targets& targets);          // and transforms, samplers and collates
void add_arrays(Targets& targets);            // data sets of arrays and text in files
void add_tables(Targets& targets);            // and published data sets of images
void add_loading(Targets& targets);           // data sets around others: Transformed, Cached
void add_image_transforms(Targets& targets);  // and batch transforms
void add_images(Targets& targets);            // data sets of images in files
void add_sampler_targets(
    Targets& targets);  // samplers that need more than a size; joined data sets
void add_metric_callbacks(Targets& targets);  // callbacks that compute metrics
void add_callbacks(Targets& targets);
void add_engines(Targets& targets);  // and runners and loggers
void add_science(Targets& targets);  // data sets and models of fields

}  // namespace lockstep::recipe

// Engines, runners and loggers.
#include "lockstep/engine/distributed.h"
#include "lockstep/engine/engine.h"
#include "lockstep/log/csv_logger.h"
#include "lockstep/log/mlflow_logger.h"
#include "lockstep/log/tensorboard_logger.h"
#include "lockstep/recipe/targets.h"
#include "lockstep/recipe/values.h"
#include "lockstep/runner/self_supervised.h"
#include "lockstep/runner/supervised.h"

namespace lockstep::recipe {
namespace {

// Of a logger that writes to a folder.
struct FolderOptions {
  std::filesystem::path logdir;
  bool log_batches = false;
};

struct MlflowTarget {
  MlflowOptions server;
  MlflowLoggerOptions logger;
};

void add_loggers(Targets& targets) {
  using F = FolderOptions;
  const std::vector<config::Field<F>> fields = {
      config::required("logdir", &F::logdir, "folder to write to"),
      {"log_batches", &F::log_batches, "also the metrics of every batch"}};
  targets.loggers.add<F>("CsvLogger", "logs/<loader>.csv; a run with a logdir has one already.",
                         fields, [](const F& o) {
                           return std::make_shared<CsvLogger>(
                               o.logdir, CsvLoggerOptions{.log_batches = o.log_batches});
                         });
  targets.loggers.add<F>("TensorBoardLogger", "tensorboard/; a run with a logdir has one already.",
                         fields, [](const F& o) {
                           return std::make_shared<TensorBoardLogger>(
                               o.logdir, TensorBoardOptions{.log_batches = o.log_batches});
                         });
  using M = MlflowTarget;
  using S = MlflowOptions;
  using Server = config::Field<S>;
  using Model = config::Field<MlflowLoggerOptions>;
  // No key for the token and the password: configs are kept with the run's logs.
  targets.loggers.add<M>(
      "MlflowLogger", "A run of an MLflow server. MLFLOW_TRACKING_URI alone adds one, too.",
      {Server("uri", &S::uri, "of the server; default: MLFLOW_TRACKING_URI").inside(&M::server),
       Server("experiment", &S::experiment,
              "made if it does not exist; default: MLFLOW_EXPERIMENT_NAME, else lockstep")
           .inside(&M::server),
       Server("run_name", &S::run_name, "default: MLFLOW_RUN_NAME, else the name of the logdir")
           .inside(&M::server),
       Server("run_id", &S::run_id, "goes on with this run; default: MLFLOW_RUN_ID")
           .inside(&M::server),
       Server("parent_run_id", &S::parent_run_id, "the run is shown below that one")
           .inside(&M::server),
       Server("timeout", &S::timeout, "seconds for an answer").inside(&M::server),
       Model("log_model", &MlflowLoggerOptions::log_model, "sends the best checkpoint at the end")
           .inside(&M::logger)},
      [](const M& o) { return std::make_shared<MlflowLogger>(o.server, o.logger); });
}

}  // namespace

void add_engines(Targets& targets) {
  using D = DeviceEngineOptions;
  targets.engines.add<D>(
      "DeviceEngine", "One process, one device.",
      {{"device", &D::device, "default: the first GPU, under a launcher its own, else the CPU"},
       {"threads", &D::threads, "inside an operation; default: LibTorch's"}},
      [](const D& o) { return std::make_shared<DeviceEngine>(o); });
  using P = DistributedDataParallelOptions;
  targets.engines.add<P>(
      "DistributedDataParallelEngine", "Several processes train one model.",
      {{"workers", &P::workers, "on this host; default: its GPUs, else its cores"},
       {"shards", &P::shards, "parts of every batch, over all hosts; default: one per worker"},
       {"address", &P::address, "of the host with rank 0"},
       {"port", &P::port, "where rank 0 listens; the same on all hosts"},
       {"world_size", &P::world_size, "workers on all hosts; default: those of this one"},
       {"first_rank", &P::first_rank, "of this host's workers"},
       // No key for the token itself: configs are kept with the run's logs.
       {"token_file", &P::token_file, "file with the run's secret; only its owner may read it"},
       {"allow_guessable_token", &P::allow_guessable_token, "allow several hosts without a secret"},
       {"interface", &P::interface, "this host's network interface or address; default: all"},
       {"backend", &P::backend, "auto, shm, gloo or nccl"},
       {"reduction", &P::reduction,
        "ordered: the same bits for any number of GPUs; fast: nccl's own order"},
       {"sync_bn", &P::sync_bn, "batch norm over all workers' samples"},
       {"device", &P::device, "default: one GPU per worker, else the CPU"},
       {"threads", &P::threads, "per worker; default: cores divided by shards"},
       {"pin", &P::pin, "binds each worker to its cores; default: if workers take all cores"},
       {"share_updates", &P::share_updates,
        "each worker of a host updates its part of the weights"},
       {"timeout", &P::timeout, "of every wait for other ranks"},
       {"join_timeout", &P::join_timeout, "of the wait for ranks to join at the start"}},
      [](const P& o) { return std::make_shared<DistributedDataParallelEngine>(o); });
  using S = SupervisedKeys;
  targets.runners.add<S>(
      "SupervisedRunner", "One forward pass and the loss of its outputs.",
      {{"input_key", &S::input_key, "the model's input in the batch"},
       {"output_key", &S::output_key, "the model's output in the batch"},
       {"target_key", &S::target_key, "the expected output in the batch"},
       {"loss_key", &S::loss_key, "the criterion's value"},
       {"input_keys", &S::input_keys, "several inputs, instead of input_key"},
       {"output_keys", &S::output_keys, "several outputs, instead of output_key"},
       {"losses", &S::losses, "the terms of the loss, which are added up"}},
      [](const S& o) { return std::make_shared<SupervisedRunner>(o); });
  using V = SelfSupervisedKeys;
  targets.runners.add<V>(
      "SelfSupervisedRunner",
      "Two forward passes of random variants of each sample; the criterion compares them.",
      {{"input_key", &V::input_key, "the model's input in the batch"},
       {"augment_prefix", &V::augment_prefix, "of the variants: with _left and _right"},
       {"embedding_prefix", &V::embedding_prefix, "of the model's first output, if it has two"},
       {"projection_prefix", &V::projection_prefix, "of its second or only output"},
       {"loss_key", &V::loss_key, "the criterion's value"},
       {"augment", &V::augment, "makes a variant of inputs; none: the data set has both"}},
      [](const V& o) { return std::make_shared<SelfSupervisedRunner>(o); });
  add_loggers(targets);
}

}  // namespace lockstep::recipe

// Estimators that are networks. They are trained with Adam, in one process or in many. The learning
// rate falls when the loss stops falling, and training ends early when the loss no longer improves.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/base/precision.h"
#include "lockstep/data/scaling.h"
#include "lockstep/science/cubes.h"
#include "lockstep/science/estimator.h"
#include "lockstep/state/state_dict.h"
#include "lockstep/train/criterion.h"
#include "lockstep/train/model.h"

namespace lockstep::science {

struct NetworkConfig {
  std::int64_t n_epochs = 1;
  std::int64_t patience = 10;  // epochs without a better loss of the first loader
  double min_delta = 1e-5;     // the smallest change that counts as better
  // Files that are there already stay. None: nothing is written.
  std::optional<std::filesystem::path> logdir = "./logs/";
  double lr = 1e-3;
  std::optional<double> min_lr;  // default: lr / 100
  double weight_decay = 0.0;
  std::optional<torch::Device> device;  // also of predictions; default: a GPU, else the CPU
  bool ddp = false;                     // trains with one worker per core or GPU
  std::optional<int> workers;           // this many workers instead; needs ddp
  std::optional<int> shards;            // parts of a batch; results depend on this. Needs ddp
  int max_restarts = 0;                 // how many times workers are made anew. Needs ddp
  std::uint64_t seed = 42;
  bool verbose = false;
  Precision precision;  // of training and predictions: fp32, bf16 or fp16
};

class Network : public Estimator {
 public:
  explicit Network(NetworkConfig config);

  // In the units of the file: if the model was trained with samples that are scaled, predictions
  // are scaled back. Throws DataError if the loader's samples are scaled in another way.
  torch::Tensor predict(const data::Loader& loader) override;
  bool scales_back() const override { return true; }
  // model.pt: {epoch, model_state_dict, optimizer_state_dict, loss}, which torch.load reads. The
  // statistics of the scaling are in params.json.
  void save(const std::filesystem::path& folder) const override;
  // Loads the model and the options that shape it (PICAE's layers, for example), which replace the
  // options of this object. The next train() continues with the loaded weights and optimizer state,
  // at the learning rate of this object.
  void load(const std::filesystem::path& folder) override;
  HParams parameters() const override;
  std::string describe() const override;
  const std::map<std::int64_t, EpochMetrics>& history() const override { return history_; }

  const Model& model() const { return model_; }
  // Of the samples that the model is for. Pass it to hdf5_dataset for other data.
  const data::Scaling& scaling() const { return scaling_; }
  const NetworkConfig& config() const { return config_; }
  std::string weights_hash() const { return weights_hash_; }
  // Of the last train().
  double samples_per_second() const { return samples_per_second_; }

 protected:
  // A network for such samples, drawn from torch's generator.
  virtual Model make_model(const FieldShape& shape) const = 0;
  virtual Criterion criterion() const = 0;
  // The options that make_model() depends on, in addition to the samples' shape; restore() sets
  // them again. restore() may throw std::out_of_range and std::bad_variant_access.
  virtual HParams options() const { return {}; }
  virtual void restore(const HParams&) {}

  void fit(const data::Loaders& loaders, const OnEpoch& on_epoch) override;

 private:
  void require_model(const char* what) const;

  NetworkConfig config_;
  std::optional<FieldShape> shape_;  // of the samples that the model is for
  data::Scaling scaling_;            // likewise
  Model model_;
  StateDict optimizer_;     // its state at the end of training
  bool is_loaded_ = false;  // the model was loaded and not trained since
  std::int64_t epoch_ = 0;
  double loss_ = 0;
  std::map<std::int64_t, EpochMetrics> history_;
  std::string weights_hash_;
  double samples_per_second_ = 0;
};

}  // namespace lockstep::science

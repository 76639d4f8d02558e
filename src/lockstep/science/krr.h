// Kernel ridge regression: it solves one system of equations and has no epochs.
#pragma once

#include <optional>

#include "lockstep/data/scaling.h"
#include "lockstep/science/estimator.h"

namespace lockstep::science {

struct KRRConfig {
  double alpha = 1.0;           // of the ridge: larger is smoother
  std::optional<double> gamma;  // of exp(-gamma |x - y|²); default: 1 / number of features
  // The most samples that it accepts: the system has one equation per sample.
  std::int64_t most_samples = 20'000;
};

class KRR : public Estimator {
 public:
  // Throws ConfigError for values out of their range.
  explicit KRR(KRRConfig config = {});

  std::string name() const override { return "KRR"; }
  // In the units of the file, as Network's.
  torch::Tensor predict(const data::Loader& loader) override;
  bool scales_back() const override { return true; }
  void save(const std::filesystem::path& folder) const override;  // model.pt and params.json
  void load(const std::filesystem::path& folder) override;
  HParams parameters() const override;
  const std::map<std::int64_t, EpochMetrics>& history() const override { return history_; }
  // Of the samples that the model is for. Pass it to hdf5_dataset for other data.
  const data::Scaling& scaling() const { return scaling_; }

 protected:
  // Fits all samples of the first loader at once. Throws DataError if there are too many.
  void fit(const data::Loaders& loaders, const OnEpoch& on_epoch) override;

 private:
  torch::Tensor kernel(const torch::Tensor& a, const torch::Tensor& b) const;
  void require_model(const char* what) const;

  KRRConfig config_;
  torch::Tensor samples_;  // [N, F], in double
  torch::Tensor weights_;  // [N, outputs]
  data::Scaling scaling_;  // of the samples
  std::map<std::int64_t, EpochMetrics> history_;
};

}  // namespace lockstep::science

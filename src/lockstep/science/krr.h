// Kernel ridge regression: no epochs, one system of equations.
#pragma once

#include <optional>

#include "lockstep/science/estimator.h"

namespace lockstep::science {

struct KRRConfig {
  double alpha = 1.0;           // of the ridge: larger is smoother
  std::optional<double> gamma;  // of exp(-gamma |x - y|²); default: one by the number of features
  // Samples it may be fitted to: the system has as many equations.
  std::int64_t most_samples = 20'000;
};

class KRR : public Estimator {
 public:
  // Throws ConfigError for values out of their range.
  explicit KRR(KRRConfig config = {});

  std::string name() const override { return "KRR"; }
  torch::Tensor predict(const data::Loader& loader) override;
  void save(const std::filesystem::path& folder) const override;  // model.pt and params.json
  void load(const std::filesystem::path& folder) override;
  HParams parameters() const override;
  const std::map<std::int64_t, EpochMetrics>& history() const override { return history_; }

 protected:
  // Of the first loader, all of it at once. Throws DataError where it has too many samples.
  void fit(const data::Loaders& loaders, const OnEpoch& on_epoch) override;

 private:
  torch::Tensor kernel(const torch::Tensor& a, const torch::Tensor& b) const;
  void require_model(const char* what) const;

  KRRConfig config_;
  torch::Tensor samples_;  // [N, F], in double
  torch::Tensor weights_;  // [N, outputs]
  std::map<std::int64_t, EpochMetrics> history_;
};

}  // namespace lockstep::science

#include "lockstep/science/krr.h"

#include <ATen/ATen.h>
#include <torch/types.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/science/parameters.h"

namespace lockstep::science {
namespace {

struct Rows {
  torch::Tensor features;
  torch::Tensor targets;
};

// All samples, each as a row of doubles.
Rows rows_of(const data::Loader& loader) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(loader.dataset()->size()));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
  const Batch batch = loader.dataset()->gather(all, {});
  Rows rows{.features = batch["features"].flatten(1).to(torch::kFloat64), .targets = {}};
  if (batch.contains("targets")) rows.targets = batch["targets"].flatten(1).to(torch::kFloat64);
  return rows;
}

}  // namespace

KRR::KRR(KRRConfig config) : config_(config) {
  if (!(config_.alpha > 0))
    throw ConfigError("KRR: alpha: expected a number > 0, got {}", config_.alpha);
  if (config_.gamma && !(*config_.gamma > 0)) {
    throw ConfigError("KRR: gamma: expected a number > 0, got {}", *config_.gamma);
  }
}

torch::Tensor KRR::kernel(const torch::Tensor& a, const torch::Tensor& b) const {
  const double gamma = config_.gamma.value_or(1.0 / static_cast<double>(a.size(1)));
  return torch::exp(torch::cdist(a, b).square() * -gamma);
}

void KRR::train(const data::Loaders& loaders) {
  if (loaders.empty()) throw ConfigError("loaders: expected at least one, got none");
  const data::Loader& loader = loaders.begin()->second;
  if (loader.dataset()->size() > config_.most_samples) {
    throw DataError("KRR: {} samples, expected at most {}: the system has as many equations",
                    with_thousands(loader.dataset()->size()), with_thousands(config_.most_samples));
  }
  const Rows rows = rows_of(loader);
  if (!rows.targets.defined()) throw DataError("KRR: the samples have no targets");
  torch::Tensor system = kernel(rows.features, rows.features);
  system.diagonal().add_(config_.alpha);
  samples_ = rows.features;
  weights_ = torch::cholesky_solve(rows.targets, at::linalg_cholesky(system));
  const double loss =
      (kernel(samples_, samples_).mm(weights_) - rows.targets).square().mean().item<double>();
  history_ = {{1, {{loaders.begin()->first, {{"loss", loss}}}}}};
}

void KRR::require_model(const char* what) const {
  if (!weights_.defined()) throw Error("KRR: {} needs a model: train() or load() first", what);
}

torch::Tensor KRR::predict(const data::Loader& loader) {
  require_model("predict");
  return kernel(rows_of(loader).features, samples_).mm(weights_).to(torch::kFloat32);
}

void KRR::save(const std::filesystem::path& folder) const {
  require_model("save");
  make_directories(folder);
  checkpoint::save(folder / "model.pt", StateDict{{"samples", samples_}, {"weights", weights_}});
  save_parameters(folder, {.estimator = name(), .parameters = parameters(), .shape = {}});
}

void KRR::load(const std::filesystem::path& folder) {
  const SavedParameters saved = load_parameters(folder, name());
  const StateDict state = checkpoint::load(folder / "model.pt");
  config_.alpha = std::get<double>(saved.parameters.at("alpha"));
  config_.gamma.reset();
  if (saved.parameters.contains("gamma"))
    config_.gamma = std::get<double>(saved.parameters.at("gamma"));
  samples_ = state.get<torch::Tensor>("samples");
  weights_ = state.get<torch::Tensor>("weights");
}

HParams KRR::parameters() const {
  HParams hparams = {{"alpha", config_.alpha}, {"kernel", std::string("rbf")}};
  if (config_.gamma) hparams["gamma"] = *config_.gamma;
  return hparams;
}

}  // namespace lockstep::science

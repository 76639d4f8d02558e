#include "lockstep/science/krr.h"

#include <ATen/ATen.h>
#include <torch/types.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/process/environment.h"
#include "lockstep/science/model_scaling.h"
#include "lockstep/science/parameters.h"

namespace lockstep::science {
namespace {

// Each sample as a row of doubles.
torch::Tensor rows_of(const torch::Tensor& samples) {
  return samples.flatten(1).to(torch::kFloat64);
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

void KRR::fit(const data::Loaders& loaders, const OnEpoch& on_epoch) {
  const auto& [name, loader] = *loaders.begin();
  if (loader.samples() > config_.most_samples) {
    throw DataError("KRR: {} samples, expected at most {}: the system has one equation per sample",
                    with_thousands(loader.samples()), with_thousands(config_.most_samples));
  }
  std::vector<torch::Tensor> features, targets;
  auto stream = loader.stream();
  while (auto batch = stream.next()) {
    if (!batch->contains("targets")) throw DataError("KRR: the samples have no targets");
    features.push_back(rows_of((*batch)["features"]));
    targets.push_back(rows_of((*batch)["targets"]));
  }
  if (features.empty()) throw DataError("KRR: the loader '{}' is empty", name);
  scaling_ = data::scaling_of(*loader.dataset());
  samples_ = torch::cat(features);
  torch::Tensor system = kernel(samples_, samples_);
  system.diagonal().add_(config_.alpha);
  weights_ = torch::cholesky_solve(torch::cat(targets), at::linalg_cholesky(system));
  // The solved system is: kernel x weights + alpha x weights = targets.
  const double loss = (config_.alpha * weights_).square().mean().item<double>();
  history_ = {{1, {{name, {{"loss", loss}}}}}};
  if (on_epoch) on_epoch(1, history_[1]);
}

void KRR::require_model(const char* what) const {
  if (!weights_.defined()) throw Error("KRR: {} needs a model: train() or load() first", what);
}

torch::Tensor KRR::predict(const data::Loader& loader) {
  require_model("predict");
  check_scaling({.name = name(), .scaling = scaling_}, loader);
  std::vector<torch::Tensor> rows;
  auto stream = loader.stream();
  while (auto batch = stream.next()) {
    rows.push_back(
        kernel(rows_of((*batch)["features"]), samples_).mm(weights_).to(torch::kFloat32));
  }
  if (rows.empty()) throw DataError("KRR: the loader is empty");
  return scaling_.targets.undo(torch::cat(rows));
}

void KRR::save(const std::filesystem::path& folder) const {
  require_model("save");
  if (!process::is_primary_process()) return;
  make_directories(folder);
  checkpoint::save(folder / "model.pt", StateDict{{"samples", samples_}, {"weights", weights_}});
  save_parameters(
      folder, {.estimator = name(), .parameters = parameters(), .shape = {}, .scaling = scaling_});
}

void KRR::load(const std::filesystem::path& folder) {
  const SavedParameters saved = load_parameters(folder, name());
  const StateDict state = checkpoint::load(folder / "model.pt");
  const auto number = [&](const char* name) -> std::optional<double> {
    const auto found = saved.parameters.find(name);
    if (found == saved.parameters.end()) return std::nullopt;
    if (const double* const value = std::get_if<double>(&found->second)) return *value;
    throw CheckpointError("{}: parameter {}: expected a number", folder.string(), name);
  };
  const std::optional<double> alpha = number("alpha");
  if (!alpha) throw CheckpointError("{}: parameter alpha: there is none", folder.string());
  const std::optional<double> gamma = number("gamma");
  samples_ = state.get<torch::Tensor>("samples");
  weights_ = state.get<torch::Tensor>("weights");
  scaling_ = saved.scaling;
  config_.alpha = *alpha;
  config_.gamma = gamma;
}

HParams KRR::parameters() const {
  HParams hparams = {{"alpha", config_.alpha}, {"kernel", std::string("rbf")}};
  if (config_.gamma) hparams["gamma"] = *config_.gamma;
  if (!scaling_.is_none()) hparams["scaling"] = data::describe(scaling_);
  return hparams;
}

}  // namespace lockstep::science

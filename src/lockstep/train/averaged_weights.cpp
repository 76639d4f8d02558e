#include "lockstep/train/averaged_weights.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/base/warn.h"
#include "lockstep/optim/blend.h"
#include "lockstep/train/combined_model.h"
#include "lockstep/train/state.h"

namespace lockstep {
namespace {

// The networks that an optimizer trains. One that was given as .optimizer trains all of them.
std::vector<std::string> trained_networks(const RunState& run) {
  std::vector<std::string> trained;
  for (const auto& [name, network] : run.models) {
    if (run.optimizers.contains(name)) trained.push_back(name);
  }
  return trained.empty() ? run.models.names() : trained;
}

}  // namespace

void AveragedWeights::check(const Request& request, const RunState& run) {
  for (const std::string& name : request.networks) {
    if (run.models.contains(name)) continue;
    throw ConfigError("{}: networks: there is no network '{}'; {}", request.asked_by, name,
                      suggest(name, run.models.names()));
  }
}

NamedTensors AveragedWeights::chosen(const Request& request,
                                     NamedTensors (Model::*tensors)() const) const {
  const auto networks = request.networks.empty() ? trained_networks(run_) : request.networks;
  if (networks.size() == run_.models.size()) return (run_.model.*tensors)();
  NamedTensors found;
  for (const std::string& name : networks) {
    for (auto& item : in_network(name, (run_.models[name].*tensors)())) {
      found.push_back(std::move(item));
    }
  }
  return found;
}

void AveragedWeights::open(const Request& request) {
  if (!owner_.empty()) {
    throw ConfigError(
        "{}: {} averages the weights already; a run has one average, so use one of them",
        request.asked_by, owner_);
  }
  check(request, run_);
  std::unordered_map<const c10::TensorImpl*, std::size_t> seen;
  for (const auto& [name, tensor] : chosen(request, &Model::weights)) {
    const auto [place, is_new] = seen.try_emplace(tensor.unsafeGetTensorImpl(), tensors_.size());
    if (is_new) tensors_.push_back(tensor);
    names_.emplace_back(name, place->second);
  }
  index_.insert(names_.begin(), names_.end());
  buffers_ = chosen(request, &Model::buffers);
  owner_ = request.asked_by;
  remakes_batch_norm_ =
      request.remake_batch_norm && std::ranges::any_of(buffers_, [](const auto& item) {
        return item.second.is_floating_point();
      });
  const bool has_loaded = run_.comm->is_primary() && take_loaded();
  constexpr std::uint64_t kExists = 1;
  constexpr std::uint64_t kNeedsBatchNorm = 2;
  std::uint64_t loaded = has_loaded ? kExists : 0;
  if (has_loaded && loaded_needs_batch_norm_) loaded |= kNeedsBatchNorm;
  loaded = run_.comm->vote(loaded).front();
  exists_ = (loaded & kExists) != 0;
  needs_batch_norm_ = remakes_batch_norm_ && (loaded & kNeedsBatchNorm) != 0;
}

// Whether the checkpoint has an average of the same weights.
bool AveragedWeights::take_loaded() {
  const StateDict loaded = std::exchange(loaded_, {});
  if (loaded.size() == 0) return false;
  const auto fits = [&](const std::pair<std::string, std::size_t>& item) {
    const auto* const saved =
        loaded.contains(item.first) ? loaded.at(item.first).get_if<torch::Tensor>() : nullptr;
    return saved != nullptr && saved->sizes() == tensors_[item.second].sizes();
  };
  if (loaded.size() != names_.size() || !std::ranges::all_of(names_, fits)) {
    warn(fmt::format(
        "resume: {}: the checkpoint has an average of other networks: a new average begins",
        owner_));
    return false;
  }
  for (const torch::Tensor& tensor : tensors_) {
    values_.push_back(torch::empty_like(tensor.detach()));
  }
  for (const auto& [name, index] : names_) {
    values_[index].copy_(loaded.get<torch::Tensor>(name));
  }
  return true;
}

void AveragedWeights::add(double weight) {
  if (is_used_) throw Error("{}: the average cannot change while it is evaluated", owner_);
  if (run_.comm->is_primary()) {
    const bool is_first = values_.empty();
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const torch::Tensor trained = tensors_[i].detach();
      if (is_first) {
        values_.push_back(trained.clone());
      } else {
        optim::blend(values_[i], trained, weight);
      }
    }
  }
  exists_ = true;
  needs_batch_norm_ = remakes_batch_norm_;
}

void AveragedWeights::swap() {
  if (!run_.comm->is_primary()) return;
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const torch::Tensor model = tensors_[i].detach();
    const torch::Tensor before = model.clone();
    model.copy_(values_[i]);
    values_[i].copy_(before);
  }
}

void AveragedWeights::use() {
  if (!exists_ || is_used_) return;
  run_.change_model([this] { swap(); });
  is_used_ = true;
}

void AveragedWeights::release() {
  if (!is_used_) return;
  run_.change_model([this] { swap(); });
  is_used_ = false;
}

void AveragedWeights::note_batch_norm(bool has_batch_norm) {
  needs_batch_norm_ = false;
  if (!has_batch_norm) remakes_batch_norm_ = false;
}

StateDict AveragedWeights::for_use() const {
  const StateDict model = run_.model.view_state();
  if (!exists_ || is_used_) return model;
  std::vector<StateDict::Entry> entries;
  for (const auto& [name, value] : model) {
    const auto found = index_.find(name);
    entries.emplace_back(name, found == index_.end() ? value : StateValue(values_[found->second]));
  }
  return StateDict(std::move(entries));
}

StateDict AveragedWeights::trained() const {
  if (!exists_) return {};
  std::vector<StateDict::Entry> entries;
  for (const auto& [name, index] : names_) {
    entries.emplace_back(name, is_used_ ? values_[index] : tensors_[index].detach());
  }
  return StateDict(std::move(entries));
}

StateDict weights_for_use(const RunState& run) {
  return run.averaged != nullptr ? run.averaged->for_use() : run.model.view_state();
}

}  // namespace lockstep

#include "lockstep/callback/batch_overfit.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/option_text.h"
#include "lockstep/base/text.h"
#include "lockstep/data/sampler.h"
#include "lockstep/data/sharding.h"

namespace lockstep {
namespace {

// Repeats the same few samples in every epoch.
class RepeatSampler : public data::Sampler {
 public:
  RepeatSampler(std::vector<std::int64_t> samples, std::int64_t size)
      : samples_(std::move(samples)), size_(size) {}

  std::int64_t size() const override { return size_; }

  std::vector<std::int64_t> indices(std::int64_t) const override {
    std::vector<std::int64_t> repeated(static_cast<std::size_t>(size_));
    for (std::size_t i = 0; i < repeated.size(); ++i) repeated[i] = samples_[i % samples_.size()];
    return repeated;
  }

 private:
  std::vector<std::int64_t> samples_;
  std::int64_t size_;
};

// Repeats the first `batches` batches of the loader, for the whole length of its epoch.
data::Loader overfitting(const data::Loader& loader, std::int64_t batches, const State& state) {
  const std::int64_t shards = state.engine->shards();
  const std::int64_t length = data::epoch_size(loader, shards).samples;
  auto samples = loader.full_order({.seed = state.seed, .epoch = 1});
  const std::int64_t kept = std::min({batches * data::batch_split(loader, shards).global, length,
                                      static_cast<std::int64_t>(samples.size())});
  samples.resize(static_cast<std::size_t>(kept));
  data::LoaderOptions options = loader.options();
  options.shuffle = false;
  options.sampler = std::make_shared<RepeatSampler>(std::move(samples), length);
  return data::Loader(loader.dataset(), options);
}

}  // namespace

BatchOverfitCallback::BatchOverfitCallback(BatchOverfitCallbackOptions options)
    : options_(std::move(options)) {
  for (const auto& [name, amount] : options_.batches) {
    const auto* count = std::get_if<std::int64_t>(&amount);
    const auto* share = std::get_if<double>(&amount);
    if (count != nullptr && *count < 1) {
      throw ConfigError("BatchOverfitCallback: {}: expected 1 or more batches, got {}", name,
                        *count);
    }
    if (share != nullptr && !(*share > 0 && *share <= 1)) {
      throw ConfigError("BatchOverfitCallback: {}: expected a share above 0 and up to 1, got {}",
                        name, *share);
    }
  }
}

std::string BatchOverfitCallback::agreed_options() const {
  std::map<std::string, std::string> amounts;
  for (const auto& [name, amount] : options_.batches) {
    const auto* const count = std::get_if<std::int64_t>(&amount);
    amounts[name] = count != nullptr ? fmt::format("{} batches", *count)
                                     : fmt::format("a share of {}", std::get<double>(amount));
  }
  return OptionText().with("batches", amounts).str();
}

void BatchOverfitCallback::check(const State& state) const {
  for (const auto& [name, amount] : options_.batches) {
    if (state.loaders.contains(name)) continue;
    throw ConfigError("BatchOverfitCallback: there is no loader '{}'; {}", name,
                      suggest(name, state.loaders.names()));
  }
}

std::int64_t BatchOverfitCallback::kept_batches(const std::string& name,
                                                std::int64_t batches) const {
  const auto found = options_.batches.find(name);
  if (found == options_.batches.end()) return 1;
  if (const auto* count = std::get_if<std::int64_t>(&found->second)) return *count;
  const double share = std::get<double>(found->second);
  return std::max<std::int64_t>(1, std::llround(share * static_cast<double>(batches)));
}

void BatchOverfitCallback::on_epoch_start(State& state) {
  originals_ = state.loaders;
  for (const auto& [name, loader] : originals_) {
    const std::int64_t batches = data::epoch_size(loader, state.engine->shards()).batches;
    state.loaders.set(name, overfitting(loader, kept_batches(name, batches), state));
  }
}

void BatchOverfitCallback::on_epoch_end(State& state) {
  state.loaders = originals_;
}

}  // namespace lockstep

#include "lockstep/data/transformed.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/collate.h"
#include "lockstep/data/composite_dataset.h"
#include "lockstep/data/describe.h"
#include "lockstep/data/gather.h"
#include "lockstep/data/sample_chain.h"
#include "lockstep/data/sample_error.h"
#include "lockstep/data/sample_stack.h"

namespace lockstep::data {
namespace {

// How the tensors of one key are changed.
struct ChangedKey {
  std::string key;
  SampleChain chain;
  bool is_mask = false;
};

std::vector<ChangedKey> changed_keys(const TransformedOptions& options) {
  std::vector<ChangedKey> changed;
  const SampleChain chain(options.transform);
  if (options.transform) {
    for (const std::string& key : options.keys) changed.push_back({.key = key, .chain = chain});
  }
  for (const std::string& key : options.masks) {
    changed.push_back({.key = key, .chain = chain, .is_mask = true});
  }
  if (options.target_transform) {
    changed.push_back({.key = "targets", .chain = SampleChain(options.target_transform)});
  }
  return changed;
}

void check_transformed(const TransformedOptions& options) {
  if (!options.transform && !options.target_transform) {
    throw ConfigError("Transformed: expected a transform or a target_transform, got none");
  }
  if (options.transform && options.keys.empty() && options.masks.empty()) {
    throw ConfigError("Transformed: keys: expected at least one for the transform, got none");
  }
  if (!options.transform && !options.masks.empty()) {
    throw ConfigError("Transformed: masks: expected a transform that moves '{}', got none",
                      options.masks.front());
  }
  std::set<std::string> seen;
  for (const ChangedKey& changed : changed_keys(options)) {
    if (!seen.insert(changed.key).second) {
      throw ConfigError(
          "Transformed: expected each key once in keys, masks and target_transform (targets), got "
          "'{}' twice",
          changed.key);
    }
  }
}

// Whether the two may be an image and its mask. Channels may come first, last or be missing, so any
// two neighbouring dimensions can be height and width.
bool can_have_one_size(torch::IntArrayRef image, torch::IntArrayRef mask) {
  const auto is_image = [](torch::IntArrayRef shape) {
    return shape.size() == 2 || shape.size() == 3;
  };
  if (!is_image(image) || !is_image(mask)) return true;
  for (std::size_t i = 0; i + 1 < image.size(); ++i) {
    for (std::size_t m = 0; m + 1 < mask.size(); ++m) {
      if (image.slice(i, 2) == mask.slice(m, 2)) return true;
    }
  }
  return false;
}

class Transformed : public WrapperDataset {
 public:
  Transformed(DatasetPtr dataset, const TransformedOptions& options)
      : WrapperDataset("Transformed", std::move(dataset)),
        changed_(changed_keys(options)),
        layer_(layer_around(inner())) {
    for (const ChangedKey& changed : changed_) {
      has_sample_steps_ = has_sample_steps_ || changed.chain.has_sample_steps();
      draws_ = draws_ || changed.chain.is_random();
    }
  }

  bool is_random() const override { return draws_ || inner().is_random(); }
  std::uint64_t random_layers() const override {
    return draws_ ? layer_ + 1 : inner().random_layers();
  }

  // A change may give the classes other numbers. A mask keeps its numbers.
  std::vector<std::string> class_names() const override {
    const ChangedKey* const targets = find_changed("targets");
    if (targets != nullptr && !targets->is_mask) return {};
    return inner().class_names();
  }

  torch::Tensor column(std::string_view key) const override {
    const ChangedKey* const changed = find_changed(key);
    if (changed == nullptr) return inner().column(key);
    // They may need random numbers, and take as long as reading the samples.
    if (changed->chain.has_sample_steps()) return {};
    const torch::Tensor before = inner().column(key);
    if (!before.defined() || before.numel() == 0 || changed->is_mask) return before;
    return apply_steps(*changed, before);
  }

  Batch sample_in_epoch(std::int64_t index, const EpochKey& key) const override {
    Batch sample = with_sample_steps(index, key);
    for (const ChangedKey& changed : changed_) {
      if (changed.is_mask || !changed.chain.batch_steps()) continue;
      const torch::Tensor one = sample[changed.key].unsqueeze(0);
      sample.set(changed.key, apply_steps(changed, one).squeeze(0));
    }
    return sample;
  }

  Batch gather_in_epoch(std::span<const std::int64_t> indices, const EpochKey& key,
                        Batch reuse) const override {
    check_indices(indices, size());
    if (has_sample_steps_ && !indices.empty()) return stacked(indices, key, reuse);
    Batch batch = inner().gather_in_epoch(indices, key, std::move(reuse));
    for (const ChangedKey& changed : changed_) {
      if (changed.is_mask) continue;
      batch.set(changed.key, apply_steps(changed, tensor_of(batch, changed.key)));
    }
    return batch;
  }

 private:
  const ChangedKey* find_changed(std::string_view key) const {
    const auto found = std::ranges::find(changed_, key, &ChangedKey::key);
    return found == changed_.end() ? nullptr : &*found;
  }

  static torch::Tensor tensor_of(const Batch& batch, const std::string& key) {
    if (const torch::Tensor* const found = batch.find(key)) return *found;
    throw DataError("Transformed: no tensor '{}' in the samples; {}", key,
                    suggest(key, batch.keys()));
  }

  // A crop of another size would be at another place.
  void check_masks(const Batch& sample) const {
    const ChangedKey& first = changed_.front();
    if (first.is_mask || !first.chain.has_sample_steps()) return;
    const torch::Tensor image = tensor_of(sample, first.key);
    for (const ChangedKey& changed : changed_) {
      if (!changed.is_mask) continue;
      const torch::Tensor mask = tensor_of(sample, changed.key);
      if (can_have_one_size(image.sizes(), mask.sizes())) continue;
      throw DataError(
          "Transformed: expected a mask of its image's height and width, but '{}' is {} and '{}' "
          "is {}; resize the mask before, in a Transformed with masks = '{}' and no keys",
          changed.key, describe(mask), first.key, describe(image), changed.key);
    }
  }

  static torch::Tensor apply_steps(const ChangedKey& changed, const torch::Tensor& batch) {
    return naming_key(changed.key, [&] { return changed.chain.batch_steps().apply(batch); });
  }

  // A sample of the other data set after the steps for single samples. Each key gets its own copy
  // of the sample's random numbers.
  Batch with_sample_steps(std::int64_t index, const EpochKey& key) const {
    Batch sample = inner().sample_in_epoch(index, key);
    check_masks(sample);
    const SampleRandom random(key_of_layer(key, layer_), index);
    for (const ChangedKey& changed : changed_) {
      const torch::Tensor before = tensor_of(sample, changed.key);
      Draw draw{.random = random, .is_mask = changed.is_mask};
      sample.set(changed.key, naming_key(changed.key, [&] {
                   return changed.chain.apply_to_sample(before, draw);
                 }));
    }
    return sample;
  }

  // Tensors under changed keys are converted while they are stacked. A mask has no further steps.
  Batch stacked(std::span<const std::int64_t> indices, const EpochKey& key,
                const Batch& reuse) const {
    static const SampleChain kNoSteps;
    std::vector<SampleStack> stacks;
    stacks.reserve(changed_.size());
    for (const ChangedKey& changed : changed_) {
      stacks.emplace_back(
          changed.is_mask ? kNoSteps : changed.chain,
          StackRequest{.key = changed.key, .count = indices.size(), .reuse = reuse});
    }
    std::vector<Batch> others;  // the tensors under other keys
    others.reserve(indices.size());
    std::vector<std::string> order;
    for (const std::int64_t index : indices) {
      others.push_back(naming_sample(*this, index, [&] {
        Batch sample = with_sample_steps(index, key);
        if (order.empty()) order = sample.keys();
        for (std::size_t c = 0; c < changed_.size(); ++c) {
          const std::string& name = changed_[c].key;
          naming_key(name, [&] { stacks[c].add(sample[name]); });
          sample.erase(name);
        }
        return sample;
      }));
    }
    Batch rest = stack()({.samples = std::move(others), .indices = indices, .reuse = reuse});
    return in_order(order, std::move(rest), stacks);
  }

  // The keys come in the order that they have in a sample: the first tensor of a batch counts its
  // samples.
  Batch in_order(const std::vector<std::string>& order, Batch rest,
                 std::vector<SampleStack>& stacks) const {
    Batch batch;
    for (const std::string& key : order) {
      if (const ChangedKey* const changed = find_changed(key)) {
        SampleStack& stack = stacks[static_cast<std::size_t>(changed - changed_.data())];
        batch.set(key, naming_key(key, [&] { return stack.finish(); }));
      } else if (const torch::Tensor* const tensor = rest.find(key)) {
        batch.set(key, *tensor);
      }
    }
    batch.update(std::move(rest));  // nested batches
    return batch;
  }

  // Directly around another one, a layer counts even if the inner one draws nothing: results of
  // earlier versions depend on it.
  static std::uint64_t layer_around(const Dataset& dataset) {
    const auto* const below = dynamic_cast<const Transformed*>(&dataset);
    return below != nullptr ? below->layer_ + 1 : dataset.random_layers();
  }

  std::vector<ChangedKey> changed_;
  std::uint64_t layer_;
  bool has_sample_steps_ = false;
  bool draws_ = false;  // random numbers of its own
};

}  // namespace

DatasetPtr transformed(DatasetPtr dataset, const TransformedOptions& options) {
  check_transformed(options);
  return std::make_shared<const Transformed>(std::move(dataset), options);
}

DatasetPtr with_target_transform(DatasetPtr dataset, const TransformPtr& transform) {
  if (!transform) return dataset;
  return transformed(std::move(dataset), {.target_transform = transform});
}

}  // namespace lockstep::data

#include "lockstep/data/collate.h"

#include <algorithm>
#include <cmath>

#include <fmt/ranges.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/describe.h"
#include "lockstep/data/gather.h"
#include "lockstep/data/sample_error.h"

namespace lockstep::data {
namespace {

// The tensors of all samples under one key.
struct SampleTensors {
  std::string_view key;
  std::vector<torch::Tensor> tensors;     // one per sample
  std::span<const std::int64_t> indices;  // of the samples
  const Batch& first_sample;
  const Batch& reuse;

  const torch::Tensor& front() const { return tensors.front(); }
  std::int64_t count() const { return static_cast<std::int64_t>(tensors.size()); }
};

// Adds what becomes of them to the batch.
using Combine = std::function<void(const SampleTensors&, Batch&)>;

[[noreturn]] void fail_alike(const SampleTensors& column, std::size_t other,
                             const std::string& advice) {
  throw DataError("sample {}: '{}' is {}, but that of sample {} is {}{}", column.indices[other],
                  column.key, describe(column.tensors[other]), column.indices.front(),
                  describe(column.front()), advice);
}

// Samples of a batch must have the same keys.
void check_keys(const Batch& sample, std::int64_t index, const Batch& first,
                std::int64_t first_index) {
  const auto fail_if_missing = [&](const std::string& key, const void* found) {
    if (found != nullptr) return;
    if (sample.contains(key)) {
      throw DataError(
          "sample {}: '{}' is of another kind than in sample {}: expected a tensor or "
          "a nested batch in both",
          index, key, first_index);
    }
    throw DataError("sample {}: no '{}', which sample {} has; it has: {}", index, key, first_index,
                    join(sample.keys(), ", "));
  };
  const auto fail_if_new = [&](const std::string& key, const void* found) {
    if (found != nullptr) return;
    throw DataError("sample {}: has '{}', which sample {} has not; that one has: {}", index, key,
                    first_index, join(first.keys(), ", "));
  };
  for (const auto& [key, list] : sample.lists()) {
    throw DataError(
        "sample {}: '{}' is a list of tensors, and it is not known how lists of several samples "
        "are combined: set the loader's collate to a function",
        index, key);
  }
  for (const auto& [key, tensor] : first) fail_if_missing(key, sample.find(key));
  for (const auto& [key, nested] : first.nested_batches()) {
    fail_if_missing(key, sample.find_nested(key));
  }
  for (const auto& [key, tensor] : sample) fail_if_new(key, first.find(key));
  for (const auto& [key, nested] : sample.nested_batches()) {
    fail_if_new(key, first.find_nested(key));
  }
}

// Goes through the keys of the samples, at all levels.
Batch combine_keys(const std::vector<const Batch*>& samples, std::span<const std::int64_t> indices,
                   const Batch& reuse, const Combine& combine) {
  const Batch& first = *samples.front();
  for (std::size_t i = 0; i < samples.size(); ++i) {
    check_keys(*samples[i], indices[i], first, indices.front());
  }
  Batch batch;
  for (const auto& [key, tensor] : first) {
    SampleTensors column{
        .key = key, .tensors = {}, .indices = indices, .first_sample = first, .reuse = reuse};
    column.tensors.reserve(samples.size());
    for (const Batch* const sample : samples) column.tensors.push_back((*sample)[key]);
    combine(column, batch);
  }
  for (const auto& [key, nested] : first.nested_batches()) {
    std::vector<const Batch*> inner;
    inner.reserve(samples.size());
    for (const Batch* const sample : samples) inner.push_back(&sample->nested(key));
    const Batch* const old = reuse.find_nested(key);
    batch.set(key, combine_keys(inner, indices, old == nullptr ? Batch() : *old, combine));
  }
  return batch;
}

Batch combine_samples(const Samples& samples, const Combine& combine) {
  std::vector<const Batch*> all;
  all.reserve(samples.samples.size());
  for (const Batch& sample : samples.samples) all.push_back(&sample);
  return combine_keys(all, samples.indices, samples.reuse, combine);
}

// A new tensor for the samples of a key, or one that is used again.
torch::Tensor allocate_for(const SampleTensors& column, torch::IntArrayRef shape) {
  const torch::Tensor& first = column.front();
  if (!first.device().is_cpu()) return torch::empty(shape, first.options());
  return reuse_or_allocate(column.reuse, column.key, shape, first.scalar_type());
}

void stack_tensors(const SampleTensors& column, Batch& batch) {
  const torch::Tensor& first = column.front();
  for (std::size_t i = 1; i < column.tensors.size(); ++i) {
    const torch::Tensor& other = column.tensors[i];
    if (other.scalar_type() != first.scalar_type()) fail_alike(column, i, "");
    if (other.sizes() != first.sizes()) {
      fail_alike(column, i,
                 fmt::format("; for samples of different shapes set the loader's collate: "
                             "data::pad({{.keys = {{\"{0}\"}}}}) extends sequences to the longest "
                             "one, data::lists({{\"{0}\"}}) keeps tensors separate",
                             column.key));
    }
  }
  std::vector<std::int64_t> shape{column.count()};
  shape.insert(shape.end(), first.sizes().begin(), first.sizes().end());
  torch::Tensor out = allocate_for(column, shape);
  batch.set(column.key, torch::stack_out(out, column.tensors));
}

bool has_at_any_level(const Batch& batch, const std::string& key) {
  return batch.contains(key) || std::ranges::any_of(batch.nested_batches(), [&](const auto& entry) {
           return has_at_any_level(entry.second, key);
         });
}

void check_named_keys(const Samples& samples, const std::vector<std::string>& keys,
                      std::string_view collate) {
  const Batch& first = samples.samples.front();
  for (const std::string& key : keys) {
    if (has_at_any_level(first, key)) continue;
    throw ConfigError("collate: {}: the samples have no '{}'; {}", collate, key,
                      suggest(key, first.keys()));
  }
}

bool is_among(const std::vector<std::string>& keys, std::string_view key) {
  return std::ranges::find(keys, key) != keys.end();
}

// Pads the sequences of one key.
class SequencePadding {
 public:
  SequencePadding(const PadOptions& options, const SampleTensors& column)
      : options_(options), column_(column) {
    for (const torch::Tensor& tensor : column.tensors) {
      lengths_.push_back(tensor.dim() == 0 ? 0 : tensor.size(0));
    }
    check_samples();
    longest_ = *std::ranges::max_element(lengths_);
  }

  void add_to(Batch& batch) const {
    const torch::Tensor lengths = torch::tensor(lengths_, torch::kInt64);
    if (!options_.length_suffix.empty()) add(batch, options_.length_suffix, lengths);
    batch.set(column_.key, padded());
    if (options_.mask_suffix.empty()) return;
    const torch::Tensor mask =
        torch::arange(longest_, torch::kInt64).unsqueeze(0) < lengths.unsqueeze(1);
    add(batch, options_.mask_suffix, options_.batch_first ? mask : mask.t().contiguous());
  }

 private:
  void check_samples() const {
    const torch::Tensor& first = column_.front();
    if (first.dim() == 0) {
      throw DataError("collate: pad: sample {}: '{}' is {}, expected a sequence [T, …]",
                      column_.indices.front(), column_.key, describe(first));
    }
    for (std::size_t i = 1; i < column_.tensors.size(); ++i) {
      const torch::Tensor& other = column_.tensors[i];
      if (other.dim() != first.dim() || other.scalar_type() != first.scalar_type() ||
          other.sizes().slice(1) != first.sizes().slice(1)) {
        fail_alike(column_, i, "; data::pad extends the first dimension only");
      }
    }
  }

  double value() const {
    const auto own = options_.values.find(std::string(column_.key));
    const double value = own == options_.values.end() ? options_.value : own->second;
    const bool integers =
        torch::isIntegralType(column_.front().scalar_type(), /*includeBool=*/true);
    if (integers && value != std::floor(value)) {
      throw ConfigError("collate: pad: value: '{}' has integers, got {}", column_.key, value);
    }
    return value;
  }

  torch::Tensor padded() const {
    const torch::IntArrayRef rest = column_.front().sizes().slice(1);
    std::vector<std::int64_t> shape = {column_.count(), longest_};
    if (!options_.batch_first) std::swap(shape[0], shape[1]);
    shape.insert(shape.end(), rest.begin(), rest.end());
    torch::Tensor out = allocate_for(column_, shape);
    out.fill_(value());
    for (std::size_t i = 0; i < column_.tensors.size(); ++i) {
      out.select(options_.batch_first ? 0 : 1, static_cast<std::int64_t>(i))
          .narrow(0, 0, lengths_[i])
          .copy_(column_.tensors[i]);
    }
    return out;
  }

  void add(Batch& batch, const std::string& suffix, const torch::Tensor& tensor) const {
    const std::string key = std::string(column_.key) + suffix;
    if (column_.first_sample.contains(key)) {
      throw ConfigError(
          "collate: pad: the samples have a '{}' of their own: set length_suffix and mask_suffix "
          "so that the new names are free",
          key);
    }
    batch.set(key, tensor.to(column_.front().device()));
  }

  const PadOptions& options_;
  const SampleTensors& column_;
  std::vector<std::int64_t> lengths_;
  std::int64_t longest_ = 0;
};

std::string describe_padding(const PadOptions& options) {
  std::string text =
      fmt::format("pad({}; value {:g}",
                  options.keys.empty() ? "all tensors" : join(options.keys, ", "), options.value);
  for (const auto& [key, value] : options.values) text += fmt::format(", {} {:g}", key, value);
  if (!options.length_suffix.empty()) text += ", length " + options.length_suffix;
  if (!options.mask_suffix.empty()) text += ", mask " + options.mask_suffix;
  return text + (options.batch_first ? ")" : ", time first)");
}

void check_pad(const PadOptions& options) {
  for (const auto& [key, value] : options.values) {
    if (options.keys.empty() || is_among(options.keys, key)) continue;
    throw ConfigError("collate: pad: values: '{}' is not among the keys; {}", key,
                      suggest(key, options.keys));
  }
  if (!options.length_suffix.empty() && options.length_suffix == options.mask_suffix) {
    throw ConfigError(
        "collate: pad: mask_suffix: expected another one than length_suffix, got '{}'",
        options.mask_suffix);
  }
  if (!options.batch_first && options.length_suffix.empty()) {
    throw ConfigError(
        "collate: pad: length_suffix: expected one, because with batch_first = false only the "
        "lengths say how many samples a batch has; got an empty one");
  }
}

}  // namespace

Collate::Collate(std::string name, Rule rule) : name_(std::move(name)), rule_(std::move(rule)) {
  if (!rule_) throw ConfigError("collate: {}: expected a function, got an empty one", name_);
}

Collate Collate::of_function(Function function) {
  if (!function) throw ConfigError("collate: expected a function, got an empty one");
  Collate collate;
  collate.name_ = "a function";
  collate.function_ = std::move(function);
  return collate;
}

Batch Collate::operator()(Samples samples) const {
  if (samples.samples.empty()) return {};
  return function_ ? function_(std::move(samples.samples)) : rule_(samples);
}

Collate Collate::followed_by(const BatchTransform& transform) const {
  Collate both = *this;
  both.after_ = after_.then(transform);
  return both;
}

Batch Collate::finish(Batch batch, const EpochKey& key, std::int64_t first_sample) const {
  // The numbers of the batch must not be those of its first sample, or the strength of a Mixup
  // would depend on how that sample was cropped.
  constexpr std::uint64_t kBatchSeed = 0x6c62272e07bb0142;
  if (!after_) return batch;
  SampleRandom random({.seed = key.seed ^ kBatchSeed, .epoch = key.epoch}, first_sample);
  return after_(std::move(batch), random);
}

Collate stack() {
  return Collate("stack",
                 [](const Samples& samples) { return combine_samples(samples, stack_tensors); });
}

Collate pad(PadOptions options) {
  check_pad(options);
  const std::string name = describe_padding(options);
  return Collate(name, [options = std::move(options)](const Samples& samples) {
    check_named_keys(samples, options.keys, "pad");
    return combine_samples(samples, [&](const SampleTensors& column, Batch& batch) {
      const bool is_sequence =
          options.keys.empty() ? column.front().dim() > 0 : is_among(options.keys, column.key);
      if (is_sequence) {
        SequencePadding(options, column).add_to(batch);
      } else {
        stack_tensors(column, batch);
      }
    });
  });
}

Collate lists(std::vector<std::string> keys) {
  if (keys.empty()) throw ConfigError("collate: lists: expected at least one key, got none");
  const std::string name = fmt::format("lists({})", join(keys, ", "));
  return Collate(name, [keys = std::move(keys)](const Samples& samples) {
    check_named_keys(samples, keys, "lists");
    return combine_samples(samples, [&](const SampleTensors& column, Batch& batch) {
      if (is_among(keys, column.key)) {
        batch.set(column.key, column.tensors);
      } else {
        stack_tensors(column, batch);
      }
    });
  });
}

namespace {

Batch make_untransformed(const Dataset& dataset, const Collate& collate, BatchRequest request) {
  const auto& [indices, key, reuse] = request;
  if (!collate) return dataset.gather_in_epoch(indices, key, std::move(request.reuse));
  check_indices(indices, dataset.size());
  Samples samples{.samples = {}, .indices = indices, .reuse = std::move(request.reuse)};
  samples.samples.reserve(indices.size());
  for (const std::int64_t index : indices) {
    samples.samples.push_back(naming_sample(
        dataset, index, [&, &key = key] { return dataset.sample_in_epoch(index, key); }));
  }
  return collate(std::move(samples));
}

}  // namespace

Batch make_batch(const Dataset& dataset, const Collate& collate, BatchRequest request) {
  const std::span<const std::int64_t> indices = request.indices;
  const EpochKey key = request.key;
  Batch batch = make_untransformed(dataset, collate, std::move(request));
  return indices.empty() ? batch : collate.finish(std::move(batch), key, indices.front());
}

}  // namespace lockstep::data

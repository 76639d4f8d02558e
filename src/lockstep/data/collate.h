// How the samples of a batch become the batch. A loader has one in its options:
//
//   Loader loader = {reviews, {.batch_size = 32, .collate = pad({.keys = {"tokens"}})}};
//
// stack()     all samples have the same shapes. A new first dimension counts the samples.
// pad({…})    sequences of different lengths are extended to the longest one.
// lists({…})  tensors stay as they are: batch.list("boxes") has one per sample.
// a function  Batch(std::vector<Batch>&& samples), for everything else. It must be safe to call
//             from several threads at once, because a loader may prefetch.
//
// The first three collate nested batches in the same way, key by key.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/data/batch.h"
#include "lockstep/data/batch_transform.h"
#include "lockstep/data/random.h"

namespace lockstep::data {

class Dataset;

// The samples that a batch is made of.
struct Samples {
  std::vector<Batch> samples;
  std::span<const std::int64_t> indices;  // of the samples in the data set, for messages
  Batch reuse;                            // as in Dataset::gather
};

class Collate {
 public:
  using Function = std::function<Batch(std::vector<Batch>&&)>;
  using Rule = std::function<Batch(const Samples&)>;

  // The data set decides: its gather() makes the batch.
  Collate() = default;

  // Throws ConfigError if the function is empty.
  template <typename F>
  requires(std::is_invocable_r_v<Batch, F&, std::vector<Batch>&&> &&
           !std::same_as<std::remove_cvref_t<F>, Collate>) Collate(F function)
      : Collate(of_function(Function(std::move(function)))) {}

  // `name` says in messages what `rule` does.
  Collate(std::string name, Rule rule);

  explicit operator bool() const { return function_ || rule_; }

  // Without samples the batch is empty.
  Batch operator()(Samples samples) const;

  // The same, and finish() also applies `transform`, after those that were given before. It may be
  // empty.
  Collate followed_by(const BatchTransform& transform) const;
  const BatchTransform& after() const { return after_; }

  // Applies the batch transform, with the random numbers of a batch that begins with this sample.
  Batch finish(Batch batch, const EpochKey& key, std::int64_t first_sample) const;

  // "stack", "pad(tokens; value 0, …)", "lists(boxes)", "a function", or "none"
  const std::string& name() const { return name_; }

 private:
  static Collate of_function(Function function);

  std::string name_ = "none";
  Function function_;
  Rule rule_;
  BatchTransform after_;
};

// Throws DataError, which names the sample, if keys, shapes or types differ.
Collate stack();

struct PadOptions {
  // The sequences. Empty: all tensors that have a dimension. A key also applies to tensors of this
  // name in nested batches. Other tensors are stacked.
  std::vector<std::string> keys = {};
  double value = 0;                           // the padding
  std::map<std::string, double> values = {};  // the same for single keys: {{"targets", -100}}
  std::string length_suffix = "_length";      // "tokens_length" [B], int64; empty: no lengths
  std::string mask_suffix = "";               // "_mask": adds "tokens_mask" [B, T], which is true
                                              // for real elements; empty: no mask
  bool batch_first = true;                    // [B, T, …]; false: [T, B, …], and a mask [T, B]
};

// Extends sequences [T, …] at their end to the longest one of the batch. Samples may differ in T
// only. Lengths are placed before the padded tensors, so that Batch::size() counts samples even if
// batch_first is false.
//
// In a run each shard of a batch is padded separately, to its own longest sequence. A loss that
// counts only real elements (a mask, or an ignore_index) does not depend on the padding, so results
// are the same for any number of workers, and for any number of shards except for rounding.
//
// Throws ConfigError if a key is not in the samples or an option makes no sense, and DataError,
// which names the sample, if samples differ in more than T.
Collate pad(PadOptions options = {});

// Throws ConfigError if no keys are given or one is not in the samples. Other tensors are stacked.
Collate lists(std::vector<std::string> keys);

struct BatchRequest {
  std::span<const std::int64_t> indices;
  EpochKey key = {};
  Batch reuse = {};  // as in Dataset::gather
};

// A batch of these samples: by `collate`, or by the data set's gather_in_epoch() if it is empty.
// Then the collate's batch transform changes it. An error while a sample is read names the sample
// (Dataset::name_of).
Batch make_batch(const Dataset& dataset, const Collate& collate, BatchRequest request);

}  // namespace lockstep::data

// Changes a whole batch after it is made, several of its tensors at once: Mixup, CutMix
// (transform/mix.h), or a function. A loader has one in its options:
//
//   Loader loader = {train, {.batch_size = 64, .batch_transform = Mixup({.alpha = 0.2, .classes =
//   10})}};
#pragma once

#include <concepts>
#include <functional>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "lockstep/data/batch.h"
#include "lockstep/data/random.h"

namespace lockstep::data {

// Gets a shard's part of a batch. The random numbers are a function of (seed, epoch, first sample
// of this part), so results do not depend on threads or workers, but on the number of shards. Must
// be safe to call from several threads at once, and must not write into the tensors.
class BatchTransform {
 public:
  using Function = std::function<Batch(Batch batch, SampleRandom& random)>;

  BatchTransform() = default;  // empty: there is none

  // If the class has a function settings(), which returns a text, ranks compare the text.
  template <typename F>
  requires(std::is_invocable_r_v<Batch, F&, Batch, SampleRandom&> &&
           !std::same_as<F, BatchTransform>) BatchTransform(F function)
      : name_(name_of(typeid(F), settings_of(function))), function_(std::move(function)) {}

  explicit operator bool() const { return static_cast<bool>(function_); }

  Batch operator()(Batch batch, SampleRandom& random) const {
    return function_(std::move(batch), random);
  }

  // First this one, then `next`, which goes on with the random numbers. Either may be empty.
  BatchTransform then(const BatchTransform& next) const;

  // "none", or the class and its settings. Ranks compare it.
  const std::string& name() const { return name_; }

 private:
  template <typename F>
  static std::string settings_of(const F& function) {
    if constexpr (requires { std::string(function.settings()); }) {
      return function.settings();
    } else {
      return {};
    }
  }
  static std::string name_of(const std::type_info& type, const std::string& settings);

  std::string name_ = "none";
  Function function_;
};

}  // namespace lockstep::data

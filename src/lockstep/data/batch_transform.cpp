#include "lockstep/data/batch_transform.h"

#include <c10/util/Type.h>

namespace lockstep::data {

std::string BatchTransform::name_of(const std::type_info& type, const std::string& settings) {
  const std::string name = c10::demangle(type.name());
  return settings.empty() ? name : name + " of " + settings;
}

BatchTransform BatchTransform::then(const BatchTransform& next) const {
  if (!*this) return next;
  if (!next) return *this;
  BatchTransform both;
  both.name_ = name_ + ", then " + next.name_;
  both.function_ = [first = function_, second = next.function_](Batch batch, SampleRandom& random) {
    return second(first(std::move(batch), random), random);
  };
  return both;
}

}  // namespace lockstep::data

// Vectors of a fixed number of elements, by extensions of GCC and clang: for any instruction set.
#pragma once

#include <cstdint>
#include <cstring>

#include "lockstep/base/vectorize.h"

namespace lockstep::compute {

template <int kWidth>
struct Lanes {
  using Floats __attribute__((vector_size(4 * kWidth))) = float;
  using Ints __attribute__((vector_size(4 * kWidth))) = std::int32_t;
  using Bytes __attribute__((vector_size(kWidth))) = std::uint8_t;
};

// Loads and stores a vector at any address, aligned or not.
template <typename Vector, typename Element>
LOCKSTEP_ALWAYS_INLINE inline Vector load(const Element* from) {
  Vector vector;
  std::memcpy(&vector, from, sizeof vector);
  return vector;
}

template <typename Vector, typename Element>
LOCKSTEP_ALWAYS_INLINE inline void store(const Vector& vector, Element* to) {
  std::memcpy(to, &vector, sizeof vector);
}

}  // namespace lockstep::compute

// The brightness of a pixel, as Pillow's convert("L") computes it.
#pragma once

#include <cstdint>

namespace lockstep::data {

// Of red, green and blue, values of 8 or 16 bits: ITU-R 601-2 with 16 bits after the point. The sum
// of the weights is 2^16, so the largest value of 16 bits still fits.
template <typename Value>
int luma(const Value* pixel) {
  const auto weighted = [pixel](int channel, std::uint32_t weight) {
    return static_cast<std::uint32_t>(pixel[channel]) * weight;
  };
  return static_cast<int>((weighted(0, 19595) + weighted(1, 38470) + weighted(2, 7471) + 0x8000) >>
                          16);
}

}  // namespace lockstep::data

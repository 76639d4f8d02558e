// A picture in memory, and as PNG.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

struct Image {
  int width = 0;
  int height = 0;
  std::vector<std::uint8_t> rgb;   // width * height * 3, rows from the top
};

// The image as a PNG file's bytes.
std::string encode_png(const Image& image);

}  // namespace lockstep

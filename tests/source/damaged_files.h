// Files that are damaged in 50 ways, always the same ones: cut short, with flipped bits, and with
// large numbers where sizes may be.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::data {

inline std::string damaged(std::string bytes, int kind) {
  std::mt19937_64 random(static_cast<std::uint64_t>(kind));
  const auto place = [&] { return static_cast<std::size_t>(random() % bytes.size()); };
  switch (kind % 4) {
    case 0:
      bytes.resize(place());
      break;
    case 1:
      for (int i = 0; i < 3; ++i) bytes[place()] ^= static_cast<char>(1 << (random() % 8));
      break;
    default: {
      // In a binary header this is the largest number, in a text it may be one with many digits.
      const std::size_t at = place();
      const std::size_t size = std::min<std::size_t>(1 + random() % 8, bytes.size() - at);
      bytes.replace(at, size, size, kind % 4 == 2 ? '\xff' : '9');
    }
  }
  return bytes;
}

// Calls read(path) for each damaged file. It has to return or to throw an Error.
template <typename Read>
void expect_errors_or_values(const std::string& good, const std::filesystem::path& path,
                             const Read& read) {
  for (int kind = 0; kind < 50; ++kind) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << damaged(good, kind);
    try {
      read(path);
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(path.string()), std::string::npos)
          << kind << ": does not name the file: " << error.what();
    } catch (const std::exception& error) {
      ADD_FAILURE() << kind << ": not an Error: " << error.what();
    }
  }
}

}  // namespace lockstep::data

// Gives damaged files to a reader: cut short, with changed bytes, with parts that are missing or
// repeated, and with huge numbers where sizes may be. They are the same ones in each run.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "tests/support/memory_limit.h"

namespace lockstep {

// How many damaged files each reader gets: 50, or the environment's LOCKSTEP_DAMAGED.
inline int damaged_files() {
  const char* const number = std::getenv("LOCKSTEP_DAMAGED");
  return number ? std::atoi(number) : 50;
}

// A reader may take this much memory for a small damaged file, but not what a damaged header says.
inline constexpr std::uint64_t kMemoryForDamaged = std::uint64_t{1} << 30;

// The variant `round` of a valid file, which must not be empty.
inline std::string damage(std::string bytes, int round) {
  std::mt19937_64 random(static_cast<std::uint64_t>(round));
  const auto below = [&](std::size_t limit) {
    return limit == 0 ? 0 : static_cast<std::size_t>(random() % limit);
  };
  // Half of the places are near the start, where most formats have their header.
  const auto place = [&] {
    return below(below(2) == 0 ? bytes.size() : std::min<std::size_t>(bytes.size(), 128));
  };
  const std::size_t at = place();
  const std::size_t size = std::min(1 + below(8), bytes.size() - at);
  switch (round % 7) {
    case 0:
      bytes.resize(at);
      break;
    case 1:
      for (int i = 0; i < 3; ++i) bytes[place()] ^= static_cast<char>(1 << below(8));
      break;
    case 2:
      for (int i = 0; i < 3; ++i) bytes[place()] = static_cast<char>(below(256));
      break;
    case 3:
      bytes.insert(at, bytes.substr(below(bytes.size()), 1 + below(64)));
      break;
    case 4:
      bytes.erase(at, 1 + below(16));
      break;
    case 5: {
      // The largest numbers with and without a sign. Which end is the first depends on the format.
      std::string number(size, '\xff');
      const std::size_t sign = below(3);
      if (sign == 0) number.front() = '\x7f';
      if (sign == 1) number.back() = '\x7f';
      bytes.replace(at, size, number);
      break;
    }
    default: {
      // Texts have numbers in digits: one of them gets 19 more, or a part is replaced by digits.
      const std::size_t digit = bytes.find_first_of("0123456789", at);
      if (below(2) == 0) {
        bytes.insert(digit == std::string::npos ? at : digit, 19, '9');
      } else {
        bytes.replace(at, size, size, '9');
      }
    }
  }
  return bytes;
}

// Calls read(bytes) with damaged variants of `good`. It has to return or to throw a Refusal, and
// needs little memory. Returns how many were refused.
template <typename Refusal = Error, typename Read>
int refused_if_damaged(const std::string& good, const Read& read) {
  const MemoryLimit limit(kMemoryForDamaged);
  int refused = 0;
  for (int round = 0; round < damaged_files(); ++round) {
    try {
      read(damage(good, round));
    } catch (const Refusal&) {
      ++refused;
    } catch (const std::exception& error) {
      ADD_FAILURE() << "damage(…, " << round << "): another error than expected: " << error.what();
    }
  }
  return refused;
}

// The same for readers of files: calls read(path) after each variant has been written there. An
// error has to name the file.
template <typename Refusal = Error, typename Read>
int refused_if_damaged(const std::string& good, const std::filesystem::path& path,
                       const Read& read) {
  return refused_if_damaged<Refusal>(good, [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    try {
      read(path);
    } catch (const Error& error) {
      EXPECT_NE(std::string_view(error.what()).find(path.string()), std::string_view::npos)
          << "does not name the file: " << error.what();
      throw;
    }
  });
}

}  // namespace lockstep

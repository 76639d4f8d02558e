// Damages valid files in many ways, the same ones in each run.
#pragma once

#include <cstdint>
#include <random>
#include <string>

// The variant `round` of a damaged file: it is cut, bytes are changed, a part is repeated or
// missing, or numbers are set to the largest value.
inline std::string damaged(std::string bytes, std::uint64_t round) {
  std::mt19937_64 random(round);
  const auto below = [&](std::size_t limit) { return limit == 0 ? 0 : random() % limit; };
  const std::size_t at = below(bytes.size());
  switch (round % 5) {
    case 0:
      bytes.resize(at);
      break;
    case 1:
      for (int i = 0; i < 3; ++i) bytes[below(bytes.size())] = static_cast<char>(below(256));
      break;
    case 2:
      bytes.insert(at, bytes.substr(below(bytes.size()), 1 + below(64)));
      break;
    case 3:
      bytes.erase(at, 1 + below(16));
      break;
    default:
      bytes.replace(at, 4, std::string(4, '\xff'));
      break;
  }
  return bytes;
}

// Calls `read` with 50 damaged variants of `bytes`. It has to return or to throw an Error; any
// other exception fails the test that calls this. Returns how many were refused.
template <typename Error, typename Read>
int refused_of_50(const std::string& bytes, const Read& read) {
  int refused = 0;
  for (std::uint64_t round = 0; round < 50; ++round) {
    try {
      read(damaged(bytes, round));
    } catch (const Error&) {
      ++refused;
    }
  }
  return refused;
}

#include "lockstep/data/draw_indices.h"

#include <bit>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "lockstep/base/text.h"

namespace lockstep::data {
namespace {

// Moves `count` random indices to the front, in a random order.
void draw_to_front(std::vector<std::int64_t>& indices, std::size_t count, SampleRandom& random) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto left = static_cast<std::int64_t>(indices.size() - i);
    std::swap(indices[i], indices[i + static_cast<std::size_t>(random.below(left))]);
  }
}

// The same choice as draw_to_front(), for a few of many indices: it does not copy all of them.
std::vector<std::int64_t> draw_few(std::span<const std::int64_t> from, std::size_t count,
                                   SampleRandom& random) {
  std::unordered_map<std::size_t, std::int64_t>
      moved;  // places that no longer have their own index
  const auto at = [&](std::size_t place) {
    const auto found = moved.find(place);
    return found == moved.end() ? from[place] : found->second;
  };
  std::vector<std::int64_t> chosen;
  chosen.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto left = static_cast<std::int64_t>(from.size() - i);
    const std::size_t place = i + static_cast<std::size_t>(random.below(left));
    chosen.push_back(at(place));
    moved[place] = at(i);
  }
  return chosen;
}

template <typename T>
std::string fingerprint_of(std::span<const T> values) {
  std::uint64_t hash = 14695981039346656037U;
  for (const T value : values) hash = (hash ^ std::bit_cast<std::uint64_t>(value)) * 1099511628211U;
  return to_hex(hash);
}

}  // namespace

std::vector<std::int64_t> count_up(std::int64_t count) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(count));
  std::iota(indices.begin(), indices.end(), std::int64_t{0});
  return indices;
}

SampleRandom order_random(std::uint64_t seed, std::int64_t epoch) {
  // Samples count from 0.
  return SampleRandom({.seed = seed, .epoch = epoch}, -1);
}

void shuffle(std::vector<std::int64_t>& indices, SampleRandom& random) {
  draw_to_front(indices, indices.size(), random);
}

std::vector<std::int64_t> choose(std::span<const std::int64_t> from, std::int64_t count,
                                 SampleRandom& random) {
  const auto wanted = static_cast<std::size_t>(count);
  constexpr std::size_t kFew = 16;  // a place in the table costs about as much as 16 copies
  if (wanted < from.size() / kFew) return draw_few(from, wanted, random);
  if (wanted <= from.size()) {
    std::vector<std::int64_t> chosen(from.begin(), from.end());
    draw_to_front(chosen, wanted, random);
    chosen.resize(wanted);
    return chosen;
  }
  std::vector<std::int64_t> chosen(wanted);
  const auto size = static_cast<std::int64_t>(from.size());
  for (std::int64_t& index : chosen) index = from[static_cast<std::size_t>(random.below(size))];
  return chosen;
}

std::string fingerprint(std::span<const std::int64_t> values) {
  return fingerprint_of(values);
}

std::string fingerprint(std::span<const double> values) {
  return fingerprint_of(values);
}

}  // namespace lockstep::data

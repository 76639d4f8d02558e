#include "lockstep/metric/class_maps.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/metric/predictions.h"

namespace lockstep::metric {
namespace {

using MapSizes = std::vector<std::int64_t>;

MapSizes sizes_of(const torch::Tensor& tensor) {
  return tensor.sizes().vec();
}

std::string shown(const MapSizes& sizes) {
  return fmt::format("[{}]", fmt::join(sizes, ", "));
}

bool has_integers(const torch::Tensor& tensor) {
  return c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
}

// [N, …] and `count` become [N, count, …].
MapSizes with_classes(MapSizes sizes, std::int64_t count) {
  sizes.insert(sizes.begin() + 1, count);
  return sizes;
}

// [N, C, …] becomes [N, …].
MapSizes without_classes(MapSizes sizes) {
  sizes.erase(sizes.begin() + 1);
  return sizes;
}

// The numbers of positions before and after the dimension of the classes.
struct MapLayout {
  explicit MapLayout(const torch::Tensor& maps)
      : samples(maps.size(0)), classes(maps.size(1)), positions(1) {
    for (std::int64_t d = 2; d < maps.dim(); ++d) positions *= maps.size(d);
  }
  std::int64_t samples, classes, positions;
};

torch::Tensor on_cpu(const torch::Tensor& tensor, torch::ScalarType type) {
  return tensor.detach().to(torch::kCPU, type).contiguous();
}

// float32 stays, so that large maps are not copied.
torch::Tensor scores_on_cpu(const torch::Tensor& outputs) {
  const bool wide = outputs.scalar_type() == torch::kFloat64 || has_integers(outputs);
  return on_cpu(outputs, wide ? torch::kFloat64 : torch::kFloat32);
}

[[noreturn]] void fail_shape(const char* what, const torch::Tensor& tensor,
                             const std::string& expected, const MapFormat& format) {
  throw DataError("{}: {}: expected {}, got the shape {}", format.metric, what, expected,
                  shown(sizes_of(tensor)));
}

template <typename T>
void fill_highest(const torch::Tensor& scores, torch::Tensor& best, const MapFormat& format) {
  const MapLayout layout(scores);
  const T* map = scores.data_ptr<T>();
  auto* to = best.data_ptr<std::int64_t>();
  std::vector<T> highest(static_cast<std::size_t>(layout.positions));
  for (std::int64_t n = 0; n < layout.samples; ++n, to += layout.positions) {
    for (std::int64_t c = 0; c < layout.classes; ++c, map += layout.positions) {
      bool has_nan = false;
      for (std::int64_t i = 0; i < layout.positions; ++i) {
        const T score = map[i];
        has_nan |= std::isnan(score);
        const bool is_higher = c == 0 || score > highest[static_cast<std::size_t>(i)];
        if (!is_higher) continue;
        highest[static_cast<std::size_t>(i)] = score;
        to[i] = c;
      }
      if (has_nan) {
        throw DataError("{}: outputs: a score of class {} is NaN in sample {}", format.metric, c,
                        n);
      }
    }
  }
}

void check_classes(const torch::Tensor& labels, const MapFormat& format, const char* what,
                   std::optional<std::int64_t> ignored) {
  const std::int64_t positions = labels.size(0) == 0 ? 1 : labels.numel() / labels.size(0);
  std::int64_t index = 0;
  for (const std::int64_t label : elements<std::int64_t>(labels)) {
    if ((label < 0 || label >= format.num_classes) && label != ignored) {
      throw DataError("{}: {}: sample {} has the class {}, expected 0 to {}{}", format.metric, what,
                      index / positions, label, format.num_classes - 1,
                      ignored ? fmt::format(" or ignore_index {}", *ignored) : "");
    }
    ++index;
  }
}

// int64 [N, …]
torch::Tensor predicted_labels(const torch::Tensor& outputs, const MapFormat& format) {
  if (has_integers(outputs)) {
    torch::Tensor labels = on_cpu(outputs, torch::kInt64);
    check_classes(labels, format, "outputs", std::nullopt);
    return labels;
  }
  if (outputs.dim() < 2 || outputs.size(1) != format.num_classes) {
    fail_shape("outputs", outputs,
               fmt::format("scores [samples, {}, …], or classes as integers", format.num_classes),
               format);
  }
  const torch::Tensor scores = scores_on_cpu(outputs);
  torch::Tensor labels = torch::empty(without_classes(sizes_of(scores)), torch::kInt64);
  if (scores.scalar_type() == torch::kFloat64) {
    fill_highest<double>(scores, labels, format);
  } else {
    fill_highest<float>(scores, labels, format);
  }
  return labels;
}

// The class of each position of [N, C, …] with one 1 at each position.
torch::Tensor labels_of_one_hot(const torch::Tensor& targets, const MapFormat& format) {
  const torch::Tensor flags = on_cpu(targets, torch::kFloat32);
  const MapLayout layout(flags);
  torch::Tensor labels = torch::full(without_classes(sizes_of(flags)), -1, torch::kInt64);
  const float* map = flags.data_ptr<float>();
  auto* to = labels.data_ptr<std::int64_t>();
  for (std::int64_t n = 0; n < layout.samples; ++n, to += layout.positions) {
    for (std::int64_t c = 0; c < layout.classes; ++c, map += layout.positions) {
      for (std::int64_t i = 0; i < layout.positions; ++i) {
        if (map[i] == 0) continue;
        if (map[i] != 1 || to[i] != -1) {
          throw DataError(
              "{}: targets: sample {} has {} at class {}, expected one 1 at each position and 0 at "
              "its other classes",
              format.metric, n, map[i] == 1 ? "a second 1" : fmt::to_string(map[i]), c);
        }
        to[i] = c;
      }
    }
    if (std::find(to, to + layout.positions, -1) != to + layout.positions) {
      throw DataError("{}: targets: sample {} has a position without a class", format.metric, n);
    }
  }
  return labels;
}

// int64 of the given sizes [N, …]
torch::Tensor expected_labels(const torch::Tensor& targets, const MapSizes& sizes,
                              const MapFormat& format) {
  const MapSizes own = sizes_of(targets);
  if (own == sizes || own == with_classes(sizes, 1)) {
    if (!has_integers(targets)) {
      throw DataError("{}: targets: expected classes as integers, got {}", format.metric,
                      c10::toString(targets.scalar_type()));
    }
    torch::Tensor labels = on_cpu(targets, torch::kInt64).reshape(sizes);
    check_classes(labels, format, "targets", format.ignore_index);
    return labels;
  }
  if (own == with_classes(sizes, format.num_classes)) return labels_of_one_hot(targets, format);
  fail_shape("targets", targets,
             fmt::format("classes {} or flags {}", shown(sizes),
                         shown(with_classes(sizes, format.num_classes))),
             format);
}

template <typename T>
void fill_above(const torch::Tensor& scores, double limit, torch::Tensor& flags,
                const MapFormat& format) {
  auto* to = flags.data_ptr<std::uint8_t>();
  bool has_nan = false;
  for (const T score : elements<T>(scores)) {
    has_nan |= std::isnan(score);
    *to++ = static_cast<double>(score) > limit;
  }
  if (has_nan) throw DataError("{}: outputs: a score is NaN", format.metric);
}

// uint8 [N, C, …]
torch::Tensor predicted_flags(const torch::Tensor& outputs, const MapFormat& format) {
  torch::Tensor maps = outputs;
  // One class needs no dimension. [N, 1, …] may also be a map of one row, with the same result.
  if (format.num_classes == 1 && (outputs.dim() < 2 || outputs.size(1) != 1)) {
    maps = outputs.unsqueeze(1);
  }
  if (maps.dim() < 2 || maps.size(1) != format.num_classes) {
    fail_shape("outputs", outputs, fmt::format("scores [samples, {}, …]", format.num_classes),
               format);
  }
  const torch::Tensor scores = scores_on_cpu(maps);
  torch::Tensor flags = torch::empty(scores.sizes(), torch::kUInt8);
  if (scores.scalar_type() == torch::kFloat64) {
    fill_above<double>(scores, *format.limit, flags, format);
  } else {
    fill_above<float>(scores, *format.limit, flags, format);
  }
  return flags;
}

torch::Tensor flags_of_labels(const torch::Tensor& labels, const MapSizes& sizes,
                              const MapFormat& format) {
  torch::Tensor flags = torch::zeros(sizes, torch::kUInt8);
  const MapLayout layout(flags);
  auto* to = flags.data_ptr<std::uint8_t>();
  const auto* label = labels.data_ptr<std::int64_t>();
  for (std::int64_t n = 0; n < layout.samples; ++n) {
    for (std::int64_t i = 0; i < layout.positions; ++i, ++label) {
      auto* const of_sample = to + n * layout.classes * layout.positions + i;
      if (*label != format.ignore_index) {
        of_sample[*label * layout.positions] = 1;
        continue;
      }
      for (std::int64_t c = 0; c < layout.classes; ++c) {
        of_sample[c * layout.positions] = ClassCounts::kIgnored;
      }
    }
  }
  return flags;
}

// uint8 of the given sizes [N, C, …]
torch::Tensor expected_flags(const torch::Tensor& targets, const MapSizes& sizes,
                             const MapFormat& format) {
  const MapSizes own = sizes_of(targets);
  const MapSizes plain = without_classes(sizes);
  if (format.num_classes > 1 && own == plain) {
    return flags_of_labels(expected_labels(targets, plain, format), sizes, format);
  }
  if (own != sizes && own != plain) {
    fail_shape("targets", targets, fmt::format("{} or {}", shown(sizes), shown(plain)), format);
  }
  const torch::Tensor values = on_cpu(targets, torch::kFloat64);
  torch::Tensor flags = torch::empty(sizes, torch::kUInt8);
  auto* to = flags.data_ptr<std::uint8_t>();
  for (const double value : elements<double>(values)) {
    if (format.ignore_index && value == static_cast<double>(*format.ignore_index)) {
      *to++ = ClassCounts::kIgnored;
    } else if (value == 0 || value == 1) {
      *to++ = value == 1;
    } else {
      const std::int64_t per_sample = values.numel() / values.size(0);
      throw DataError(
          "{}: targets: sample {} has the value {}, expected 0 or 1{}", format.metric,
          (to - flags.data_ptr<std::uint8_t>()) / per_sample, value,
          format.ignore_index ? fmt::format(" or ignore_index {}", *format.ignore_index) : "");
    }
  }
  return flags;
}

}  // namespace

FlagMaps read_flags(const torch::Tensor& outputs, const torch::Tensor& targets,
                    const MapFormat& format) {
  expect_same_samples(outputs, targets);
  FlagMaps maps;
  maps.predicted = predicted_flags(outputs, format);
  maps.expected = expected_flags(targets, sizes_of(maps.predicted), format);
  return maps;
}

void count_maps(ClassCounts& counts, const torch::Tensor& outputs, const torch::Tensor& targets,
                const MapFormat& format) {
  if (format.limit) {
    const FlagMaps maps = read_flags(outputs, targets, format);
    counts.add_flags(maps.predicted, maps.expected);
    return;
  }
  expect_same_samples(outputs, targets);
  const torch::Tensor predicted = predicted_labels(outputs, format);
  counts.add_labels(predicted, expected_labels(targets, sizes_of(predicted), format),
                    format.ignore_index);
}

}  // namespace lockstep::metric

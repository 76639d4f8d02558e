// Results of scikit-learn and others (scripts/goldens/metric.py and metric_catalogue.py), and
// functions that compare metrics with them.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/file.h"
#include "lockstep/metric/metric.h"

namespace lockstep::metric {

inline const nlohmann::json& golden() {
  static const auto json = nlohmann::json::parse(read_file(LOCKSTEP_GOLDENS "/metric.json"));
  return json;
}

inline const nlohmann::json& catalogue() {
  static const auto json =
      nlohmann::json::parse(read_file(LOCKSTEP_GOLDENS "/metric_catalogue.json"));
  return json;
}

template <typename T>
torch::Tensor vector_of(const nlohmann::json& values) {
  // Without a type, torch would make float32 of doubles.
  return torch::tensor(values.get<std::vector<T>>(), c10::CppTypeToScalarType<T>::value);
}

// Rows of equal length.
template <typename T>
torch::Tensor matrix_of(const nlohmann::json& rows) {
  std::vector<torch::Tensor> tensors;
  for (const auto& row : rows) tensors.push_back(vector_of<T>(row));
  return torch::stack(tensors);
}

// Nested lists of equal lengths.
template <typename T>
torch::Tensor tensor_of_lists(const nlohmann::json& lists) {
  if (!lists.front().is_array()) return vector_of<T>(lists);
  std::vector<torch::Tensor> tensors;
  for (const auto& list : lists) tensors.push_back(tensor_of_lists<T>(list));
  return torch::stack(tensors);
}

// null stands for NaN. Both sides round a few numbers near 1: 1e-12 is far above these errors and
// far below the change that one more sample would make.
inline void expect_near(double value, const nlohmann::json& expected, const std::string& what) {
  if (expected.is_null()) {
    EXPECT_TRUE(std::isnan(value)) << what << " is " << value;
  } else {
    EXPECT_NEAR(value, expected.get<double>(), 1e-12) << what;
  }
}

// Equal to the bit; any NaN equals any other NaN.
inline void expect_same_bits(const Metrics& value, const Metrics& expected) {
  ASSERT_EQ(value.size(), expected.size());
  for (const auto& [name, number] : expected) {
    ASSERT_TRUE(value.contains(name)) << name;
    if (std::isnan(number) && std::isnan(value.at(name))) continue;
    EXPECT_EQ(std::bit_cast<std::uint64_t>(value.at(name)), std::bit_cast<std::uint64_t>(number))
        << name << " is " << value.at(name) << ", expected " << number;
  }
}

inline void expect_names_match(const Metric& metric) {
  std::vector<std::string> computed;
  for (const auto& [name, value] : metric.compute()) computed.push_back(name);
  EXPECT_THAT(metric.names(), testing::UnorderedElementsAreArray(computed));
}

// 1 to 4 ranks, and one without a batch, get the batches in turn. Their states, merged in either
// direction and through a checkpoint, must compute to the bits of one rank that got all batches.
// `make` returns an empty metric, update(metric, i) adds batch i to it.
template <typename Make, typename Update>
void expect_merges_exactly(const Make& make, int batches, const Update& update) {
  auto whole = make();
  for (int i = 0; i < batches; ++i) update(whole, i);
  for (int ranks = 1; ranks <= 4; ++ranks) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    std::vector<decltype(make())> parts;
    for (int r = 0; r <= ranks; ++r) parts.push_back(make());
    for (int i = 0; i < batches; ++i) update(parts[i % ranks], i);

    auto forward = make();
    for (const auto& part : parts) forward.merge(part.state());
    expect_same_bits(forward.compute(), whole.compute());

    auto backward = make();
    backward.load_state(parts.back().state());
    for (int r = ranks - 1; r >= 0; --r) backward.merge(parts[r].state());
    expect_same_bits(backward.compute(), whole.compute());
  }

  // Interrupted after the first batch, resumed from the checkpoint.
  auto before = make();
  update(before, 0);
  auto after = make();
  update(after, batches - 1);  // replaced by what is loaded
  after.load_state(before.state());
  for (int i = 1; i < batches; ++i) update(after, i);
  expect_same_bits(after.compute(), whole.compute());
}

// A data set cut into batches, the last one shorter.
struct Batches {
  torch::Tensor outputs, targets;
  std::int64_t batch_size = 32;

  int size() const { return static_cast<int>((targets.size(0) + batch_size - 1) / batch_size); }
  template <typename M>
  void operator()(M& metric, int i) const {
    const std::int64_t begin = batch_size * i;
    const auto end = std::min<std::int64_t>(begin + batch_size, targets.size(0));
    metric.update(outputs.slice(0, begin, end), targets.slice(0, begin, end));
  }
};

// The values of a data set do not depend on how it is divided into batches, except deviations of
// batches, which are left out.
template <typename Make>
void expect_batches_do_not_matter(const Make& make, const torch::Tensor& outputs,
                                  const torch::Tensor& targets) {
  const auto values = [&](std::int64_t batch_size) {
    auto metric = make();
    const Batches batches{outputs, targets, batch_size};
    for (int i = 0; i < batches.size(); ++i) batches(metric, i);
    Metrics metrics = metric.compute();
    std::erase_if(metrics, [](const auto& item) { return item.first.ends_with("/std"); });
    return metrics;
  };
  const Metrics whole = values(targets.size(0));
  for (const std::int64_t batch_size : {1, 3, 7}) expect_same_bits(values(batch_size), whole);
}

}  // namespace lockstep::metric

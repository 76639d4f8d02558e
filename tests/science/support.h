// The fields of scripts/goldens/science_numbers.py, and comparisons with NumPy's results for them;
// a random transform; the environment of a rank.
#pragma once

#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <torch/torch.h>

#include "lockstep/base/file.h"
#include "lockstep/data/transform.h"

namespace lockstep::science::testing {

inline nlohmann::json golden() {
  return nlohmann::json::parse(read_file(std::string(LOCKSTEP_GOLDENS) + "/science_numbers.json"));
}

inline torch::Tensor field(const std::vector<std::int64_t>& shape, int seed) {
  torch::Tensor total = torch::zeros(shape, torch::kFloat64);
  for (int m = 1; m < 6; ++m) {
    torch::Tensor phase = torch::zeros(shape, torch::kFloat64);
    for (std::size_t i = 0; i < shape.size(); ++i) {
      std::vector<std::int64_t> view(shape.size(), 1);
      view[i] = shape[i];
      const torch::Tensor grid =
          torch::arange(shape[i], torch::kFloat64) / static_cast<double>(shape[i]);
      phase = phase + (m + seed + static_cast<int>(i)) % 4 * grid.reshape(view);
    }
    total += torch::sin(2 * M_PI * phase + 0.7 * m + seed) / m;
  }
  return total +
         0.1 *
             torch::cos(torch::arange(total.numel(), torch::kFloat64).reshape(shape) * 0.37 + seed);
}

inline void expect_near(const torch::Tensor& ours, const nlohmann::json& theirs) {
  const torch::Tensor flat = ours.to(torch::kFloat64).flatten();
  EXPECT_NEAR(flat.norm().item<double>(), theirs["norm"].get<double>(),
              1e-5 * std::max(1.0, theirs["norm"].get<double>()));
  const std::int64_t step = std::max<std::int64_t>(1, flat.numel() / 16);
  for (std::size_t i = 0; i < theirs["some"].size(); ++i) {
    EXPECT_NEAR(flat[static_cast<std::int64_t>(i) * step].item<double>(),
                theirs["some"][i].get<double>(), 1e-5)
        << i;
  }
}

inline void expect_near(const std::vector<double>& ours, const nlohmann::json& theirs) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i)
    EXPECT_NEAR(ours[i], theirs[i].get<double>(), 1e-5) << i;
}

inline const std::vector<std::vector<std::int64_t>> kShapes = {{30}, {12, 9}, {12, 10, 8}};

inline torch::Tensor velocity() {
  return torch::stack({field({12, 12, 12}, 1), field({12, 12, 12}, 2), field({12, 12, 12}, 3)});
}

}  // namespace lockstep::science::testing

namespace lockstep::science::test {

// Turns the last axis around, for about every second sample.
class RandomMirror : public data::SampleTransform {
 public:
  using SampleTransform::apply;
  torch::Tensor apply(const torch::Tensor& sample, data::Draw& draw) const override {
    return draw.random.chance(0.5) ? sample.flip(-1) : sample;
  }
  bool is_random() const override { return true; }
};

// Sets the environment variables of a launcher's rank for this process, until it is destroyed.
class Rank {
 public:
  Rank(int rank, int size) {
    for (const auto& [name, value] :
         {std::pair("RANK", rank), std::pair("LOCAL_RANK", rank), std::pair("WORLD_SIZE", size),
          std::pair("LOCAL_WORLD_SIZE", size)}) {
      ::setenv(name, std::to_string(value).c_str(), 1);
    }
    ::setenv("MASTER_ADDR", "127.0.0.1", 1);
    ::setenv("MASTER_PORT", "1", 1);
  }
  ~Rank() {
    for (const char* const name :
         {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
      ::unsetenv(name);
    }
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
};

}  // namespace lockstep::science::test

// The values of a config that `lockstep tune` searches.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/config/node.h"

namespace lockstep::command {

// The values of one trial: a path in the config, "optimizer.lr", and what is put there.
using TrialValues = std::vector<std::pair<std::string, config::Node>>;

// The value on one line, as a user would write it: 0.01, Adam, [1, 2], {p: 0.5}.
std::string show_value(const config::Node& value);

// A value of the config, and what it may be.
class Dimension {
 public:
  // `range` is one of
  //
  //   choice(32, 64, 128)     one of these values, each of them YAML
  //   uniform(0, 0.5)         a number
  //   loguniform(1e-4, 1e-1)  a number, every power of ten equally often
  //   int(16, 256)            an integer; both ends are possible
  //   int(16, 256, 16)        the same in steps
  //
  // Throws ConfigError, which names the path.
  Dimension(std::string path, const std::string& range);
  // One of these values. Throws ConfigError if there is none.
  Dimension(std::string path, std::vector<config::Node> choices);

  const std::string& path() const { return path_; }
  std::string describe() const;  // as above, on one line

  // Numbers between 0 and 1 choose a value. Numbers have 4 digits that count.
  config::Node at(double fraction) const;

  // The number of values, if they can be listed; else 0.
  std::int64_t count() const;
  // The value with this number, from 0.
  config::Node listed(std::int64_t number) const;

 private:
  enum class Kind { kChoice, kUniform, kLogUniform, kInteger };

  std::string path_;
  Kind kind_ = Kind::kChoice;
  std::vector<config::Node> choices_;
  double low_ = 0;
  double high_ = 0;
  std::int64_t first_ = 0;  // of integers
  std::int64_t step_ = 1;
  std::int64_t integers_ = 0;
};

class SearchSpace {
 public:
  // Throws ConfigError if the path is there already.
  void add(Dimension dimension);

  bool empty() const { return dimensions_.empty(); }
  const std::vector<Dimension>& dimensions() const { return dimensions_; }

  // The values of a trial. They depend on the seed, the number of the trial and the path, and on
  // nothing else: more trials or more dimensions do not change them.
  TrialValues sample(std::uint64_t seed, std::int64_t trial) const;

  // The number of all combinations. Throws ConfigError if the values of a dimension cannot be
  // listed, or if there are more than a million combinations.
  std::int64_t grid_size() const;
  // A combination, by its number from 0. The last dimension changes fastest.
  TrialValues grid_point(std::int64_t number) const;

 private:
  std::vector<Dimension> dimensions_;
};

}  // namespace lockstep::command

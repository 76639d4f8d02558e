#include "lockstep/metric/sample_means.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/metric/saved_tensor.h"

namespace lockstep::metric {

SampleMeans::SampleMeans(std::vector<std::string> names, std::optional<Better> better)
    : names_(std::move(names)), better_(better), tallies_(names_.size()) {}

void SampleMeans::add(std::size_t index, std::span<const double> values) {
  if (values.empty()) return;
  ExactSum sum;
  for (const double value : values) sum.add(value);
  const auto count = static_cast<std::int64_t>(values.size());
  tallies_[index].sum.merge(sum);
  tallies_[index].batches.add(sum.value() / static_cast<double>(count), count);
}

void SampleMeans::add_mean(std::size_t index, double mean, std::int64_t count) {
  if (count == 0) return;
  tallies_[index].sum.add_product(mean, static_cast<double>(count));
  tallies_[index].batches.add(mean, count);
}

void SampleMeans::add_share(std::size_t index, std::int64_t part, std::int64_t whole) {
  if (whole == 0) return;
  tallies_[index].sum.add(static_cast<double>(part));
  tallies_[index].batches.add(static_cast<double>(part) / static_cast<double>(whole), whole);
}

std::vector<std::string> SampleMeans::names() const {
  std::vector<std::string> names;
  for (const std::string& name : names_) {
    names.push_back(name);
    names.push_back(name + "/std");
  }
  return names;
}

std::optional<Better> SampleMeans::better(std::string_view name) const {
  return std::ranges::find(names_, name) != names_.end() ? better_ : std::nullopt;
}

void SampleMeans::reset() {
  tallies_.assign(names_.size(), {});
}

Metrics SampleMeans::compute() const {
  Metrics metrics;
  for (std::size_t i = 0; i < tallies_.size(); ++i) {
    const auto& [sum, batches] = tallies_[i];
    // 0 / 0 gives the NaN that is documented for no samples
    metrics[names_[i]] = sum.value() / static_cast<double>(batches.samples());
    metrics[names_[i] + "/std"] = batches.std();
  }
  return metrics;
}

StateDict SampleMeans::state() const {
  std::vector<StateDict::Entry> entries;
  for (std::size_t i = 0; i < tallies_.size(); ++i) {
    entries.emplace_back(names_[i], StateDict{{"sum", saved_sum(tallies_[i].sum)},
                                              {"batches", tallies_[i].batches.state()}});
  }
  return StateDict(std::move(entries));
}

std::vector<SampleMeans::SampleTally> SampleMeans::read(const StateDict& state) const {
  if (state.keys() != names_) {
    throw CheckpointError("metrics: expected [{}], found [{}]", fmt::join(names_, ", "),
                          fmt::join(state.keys(), ", "));
  }
  std::vector<SampleTally> tallies;
  for (const std::string& name : names_) {
    const auto saved = state.get<StateDict>(name);
    tallies.push_back({.sum = read_sum(saved, "sum"),
                       .batches = Moments::from_state(saved.get<StateDict>("batches"))});
  }
  return tallies;
}

void SampleMeans::merge(const StateDict& other) {
  const std::vector<SampleTally> theirs = read(other);
  for (std::size_t i = 0; i < tallies_.size(); ++i) {
    tallies_[i].sum.merge(theirs[i].sum);
    tallies_[i].batches.merge(theirs[i].batches);
  }
}

}  // namespace lockstep::metric

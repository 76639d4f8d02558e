#include "lockstep/metric/loader_rows.h"

#include <algorithm>
#include <iterator>

#include "lockstep/base/error.h"
#include "lockstep/metric/predictions.h"

namespace lockstep::metric {

void LoaderRows::reset() {
  parts_.clear();
  next_ = {};
}

void LoaderRows::add(const torch::Tensor& outputs, const torch::Tensor& targets) {
  expect_same_samples(outputs, targets);
  // Copies, because the loader uses the memory of a batch again.
  const auto kept = [](const torch::Tensor& tensor) {
    return tensor.detach().to(torch::kCPU).clone(at::MemoryFormat::Contiguous);
  };
  parts_.push_back({.place = next_, .outputs = kept(outputs), .targets = kept(targets)});
  next_ = {.batch = next_.batch + 1};
}

bool LoaderRows::empty() const {
  return std::ranges::all_of(parts_, [](const Rows& part) { return part.targets.size(0) == 0; });
}

LoaderRows::All LoaderRows::all() const {
  std::vector<const Rows*> sorted;
  for (const Rows& part : parts_) {
    if (part.targets.size(0) > 0) sorted.push_back(&part);
  }
  std::ranges::stable_sort(sorted, {}, [](const Rows* part) { return part->place; });
  std::vector<torch::Tensor> outputs, targets;
  for (const Rows* part : sorted) {
    outputs.push_back(part->outputs);
    targets.push_back(part->targets);
  }
  return {.outputs = torch::cat(outputs), .targets = torch::cat(targets)};
}

StateDict LoaderRows::state() const {
  StateList parts;
  for (const Rows& part : parts_) {
    parts.emplace_back(StateDict{{"batch", part.place.batch},
                                 {"shard", part.place.shard},
                                 {"outputs", part.outputs},
                                 {"targets", part.targets}});
  }
  return {{"parts", std::move(parts)}, {"next", next_.batch}};
}

std::vector<LoaderRows::Rows> LoaderRows::read(const StateDict& state) {
  std::vector<Rows> parts;
  for (const StateValue& value : state.get<StateList>("parts")) {
    const auto* saved = value.get_if<StateDict>();
    if (saved == nullptr) {
      throw CheckpointError("parts: expected dictionaries, found {}", value.kind());
    }
    parts.push_back({.place = {.batch = saved->get<std::int64_t>("batch"),
                               .shard = saved->get<std::int64_t>("shard")},
                     .outputs = saved->get<torch::Tensor>("outputs"),
                     .targets = saved->get<torch::Tensor>("targets")});
  }
  return parts;
}

void LoaderRows::load_state(const StateDict& state) {
  parts_ = read(state);
  next_ = {.batch = state.get<std::int64_t>("next")};
}

void LoaderRows::merge(const StateDict& other) {
  std::ranges::move(read(other), std::back_inserter(parts_));
}

}  // namespace lockstep::metric

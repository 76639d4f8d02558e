#include "lockstep/checkpoint/store.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/warn.h"
#include "lockstep/checkpoint/file.h"

namespace lockstep::checkpoint {
namespace fs = std::filesystem;
namespace {

std::string epoch_name(std::int64_t epoch) {
  return fmt::format("epoch.{:04}.pth", epoch);
}

bool is_among(const std::vector<Kept>& list, std::int64_t epoch) {
  return std::ranges::count(list, epoch, &Kept::epoch) > 0;
}

nlohmann::json to_json(const Kept& kept) {
  nlohmann::json metrics = nlohmann::json::object();
  for (const auto& [loader, values] : kept.metrics) metrics[loader] = values;
  return {{"epoch", kept.epoch},
          {"_score_", kept.score},
          {"metrics", metrics},
          {"checkpoint", kept.path.filename().string()}};
}

// Checkpoints in the folder other than `except`: last.pth first, then the epochs, newest first.
// best.pth is not listed, because it is another name for one of these.
std::vector<fs::path> others(const fs::path& folder, const fs::path& except) {
  std::map<std::int64_t, fs::path, std::greater<>> by_epoch;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.path() == except) continue;
    if (name == "last.pth") by_epoch[std::numeric_limits<std::int64_t>::max()] = entry.path();
    int epoch = 0;
    if (std::sscanf(name.c_str(), "epoch.%d.pth", &epoch) == 1 && name == epoch_name(epoch)) {
      by_epoch[epoch] = entry.path();
    }
  }
  std::vector<fs::path> paths;
  for (auto& [epoch, path] : by_epoch) paths.push_back(path);
  return paths;
}

}  // namespace

std::filesystem::path folder_in(const std::filesystem::path& logdir) {
  return logdir / "checkpoints";
}

StateDict to_state(const EpochMetrics& metrics) {
  StateDict state;
  for (const auto& [loader, values] : metrics) {
    StateDict entry;
    for (const auto& [name, value] : values) entry.set(name, value);
    state.set(loader, entry);
  }
  return state;
}

EpochMetrics metrics_from_state(const StateDict& state) {
  EpochMetrics metrics;
  for (const auto& [loader, entry] : state) {
    const auto values = state.get<StateDict>(loader);
    for (const auto& [name, value] : values) metrics[loader][name] = values.get<double>(name);
  }
  return metrics;
}

Store::Store(StoreOptions options) : options_(std::move(options)) {
  if (options_.keep_best < 0) {
    throw ConfigError("checkpoints to keep: expected 0 or more, got {}", options_.keep_best);
  }
  make_directories(options_.folder);
  remove_abandoned_writes(options_.folder);
}

void Store::save_epoch(const Kept& epoch, const std::function<StateDict()>& make_state) {
  const std::vector<Kept> before = best_;
  Kept kept = epoch;
  kept.path = options_.folder / epoch_name(epoch.epoch);
  // An epoch that runs again after a resume replaces its earlier result.
  std::erase_if(best_, [&](const Kept& other) { return other.epoch == kept.epoch; });
  if (!std::isnan(kept.score)) insert(kept);
  if (best_.size() > static_cast<std::size_t>(options_.keep_best)) {
    best_.resize(static_cast<std::size_t>(options_.keep_best));
  }
  try {
    // Made now, so that the list of the best in it includes this epoch.
    const StateDict state = make_state();
    if (is_among(best_, kept.epoch)) save(kept.path, state);
    save_last(state);
  } catch (...) {
    // The epoch was not saved, so it is not among the best.
    std::error_code ignored;
    if (!is_among(before, kept.epoch)) fs::remove(kept.path, ignored);
    best_ = before;
    throw;
  }
  for (const auto& old : before) dropped_.insert(old.path);
  dropped_.insert(kept.path);  // its file may exist from before a resume
  for (const auto& best : best_) dropped_.erase(best.path);
  if (!best_.empty()) link_file_atomically(best_.front().path, best_path());
  kept.path = last_path();
  write_index(kept);
  while (!dropped_.empty()) {
    fs::remove(*dropped_.begin());
    dropped_.erase(dropped_.begin());
  }
}

// Inserted after those with the same score, so the first epoch that reached it stays the best.
void Store::insert(const Kept& kept) {
  const auto better = [this](const Kept& a, const Kept& b) {
    return is_better(a.score, b.score, options_.better);
  };
  best_.insert(std::ranges::upper_bound(best_, kept, better), kept);
}

void Store::save_last(const StateDict& state) {
  save(last_path(), state);
}

void Store::write_index(const Kept& last) const {
  nlohmann::json index;
  index["best"] = best_.empty() ? nlohmann::json() : to_json(best_.front());
  index["last"] = to_json(last);
  index["kept"] = nlohmann::json::array();
  for (const auto& kept : best_) index["kept"].push_back(to_json(kept));
  write_file_atomically(options_.folder / "_metrics.json", index.dump(2) + "\n");
}

StateDict Store::state() const {
  StateList kept;
  for (const auto& entry : best_) {
    kept.push_back(StateDict{{"epoch", entry.epoch}, {"metrics", to_state(entry.metrics)}});
  }
  return {{"best", kept}};
}

void Store::load_state(const StateDict& state, const Score& score) {
  best_.clear();
  for (const auto& value : state.get<StateList>("best")) {
    const auto* entry = value.get_if<StateDict>();
    if (entry == nullptr) throw CheckpointError("best: expected dictionaries in the list");
    Kept kept;
    kept.epoch = entry->get<std::int64_t>("epoch");
    kept.metrics = metrics_from_state(entry->get<StateDict>("metrics"));
    kept.path = options_.folder / epoch_name(kept.epoch);
    const auto scored = score(kept.epoch, kept.metrics);
    if (!scored || std::isnan(*scored) || !fs::exists(kept.path)) continue;
    kept.score = *scored;
    insert(kept);
  }
  const auto keep = static_cast<std::size_t>(options_.keep_best);
  if (best_.size() > keep) best_.resize(keep);
  for (const auto& path : others(options_.folder, last_path())) {
    if (std::ranges::count(best_, path, &Kept::path) == 0) fs::remove(path);
  }
  if (!best_.empty()) link_file_atomically(best_.front().path, best_path());
}

Loaded load_by_name(const std::string& name, const std::optional<fs::path>& folder) {
  std::error_code ignored;  // for a path without access, reading it reports the reason
  if (fs::is_regular_file(name, ignored)) return {load(name), name};
  if (!folder) {
    throw CheckpointError(
        "resume '{}': no such file, and there is no logdir to look for a "
        "checkpoint of that name",
        name);
  }
  const fs::path wanted = *folder / (name.ends_with(".pth") ? name : name + ".pth");
  if (!fs::is_regular_file(wanted, ignored)) {
    throw CheckpointError(
        "resume '{}': no such file, and no {}; expected a path, or 'best' or "
        "'last' of an earlier run in the logdir",
        name, wanted.string());
  }
  std::string damage;
  try {
    return {load(wanted), wanted};
  } catch (const CheckpointError& error) {
    damage = error.what();
  }
  for (const auto& other : others(*folder, wanted)) {
    try {
      Loaded loaded{load(other), other};
      warn(fmt::format("{}; going on from {} instead", damage, other.string()));
      return loaded;
    } catch (const CheckpointError& error) {
      damage += std::string("; ") + error.what();
    }
  }
  throw CheckpointError("{}; there is no other checkpoint to go on from", damage);
}

}  // namespace lockstep::checkpoint

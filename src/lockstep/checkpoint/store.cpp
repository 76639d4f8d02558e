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

constexpr const char* kBestName = "best.pth";
constexpr const char* kLastName = "last.pth";

std::string epoch_name(std::int64_t epoch) {
  return fmt::format("epoch.{:04}.pth", epoch);
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
    if (name == kLastName) by_epoch[std::numeric_limits<std::int64_t>::max()] = entry.path();
    int epoch = 0;
    if (std::sscanf(name.c_str(), "epoch.%d.pth", &epoch) == 1 && name == epoch_name(epoch)) {
      by_epoch[epoch] = entry.path();
    }
  }
  std::vector<fs::path> paths;
  for (auto& [epoch, path] : by_epoch) paths.push_back(path);
  return paths;
}

// The decision about the files of an epoch.
struct EpochFiles {
  fs::path folder;
  Kept epoch;                          // with the path that it has if it is kept
  bool among_best = false;             // it is kept
  std::vector<Kept> best = {};         // of all epochs, the best one first
  std::vector<fs::path> dropped = {};  // files of epochs that are not kept
};

void write_index(const EpochFiles& files) {
  Kept last = files.epoch;
  last.path = files.folder / kLastName;
  nlohmann::json index;
  index["best"] = files.best.empty() ? nlohmann::json() : to_json(files.best.front());
  index["last"] = to_json(last);
  index["kept"] = nlohmann::json::array();
  for (const auto& kept : files.best) index["kept"].push_back(to_json(kept));
  write_file_atomically(files.folder / "_metrics.json", index.dump(2) + "\n");
}

// If the process is killed in between, all files that last.pth or its predecessor lists are there.
void write_epoch(const EpochFiles& files, const StateDict& state) {
  if (files.among_best) save(files.epoch.path, state);
  save(files.folder / kLastName, state);
  if (!files.best.empty()) {
    link_file_atomically(files.best.front().path, files.folder / kBestName);
  }
  write_index(files);
  for (const auto& path : files.dropped) fs::remove(path);
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

Store::Write Store::decide_epoch(const Kept& epoch) {
  Kept kept = epoch;
  kept.path = options_.folder / epoch_name(epoch.epoch);
  // An epoch that runs again after a resume replaces its earlier result.
  std::erase_if(best_, [&](const Kept& other) { return other.epoch == kept.epoch; });
  if (!std::isnan(kept.score)) insert(kept);
  EpochFiles files{.folder = options_.folder, .epoch = kept};
  while (best_.size() > static_cast<std::size_t>(options_.keep_best)) {
    files.dropped.push_back(best_.back().path);
    best_.pop_back();
  }
  files.among_best = std::ranges::count(best_, kept.epoch, &Kept::epoch) > 0;
  if (!files.among_best) files.dropped.push_back(kept.path);  // may exist from before a resume
  files.best = best_;
  return [files = std::move(files)](const StateDict& state) { write_epoch(files, state); };
}

// Inserted after those with the same score, so the first epoch that reached it stays the best.
void Store::insert(const Kept& kept) {
  const auto better = [this](const Kept& a, const Kept& b) {
    return is_better(a.score, b.score, options_.better);
  };
  best_.insert(std::ranges::upper_bound(best_, kept, better), kept);
}

Store::Write Store::decide_last() const {
  return [path = last_path()](const StateDict& state) { save(path, state); };
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

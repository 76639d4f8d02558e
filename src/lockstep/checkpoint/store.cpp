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

// The decision about the files in the folder.
struct FolderFiles {
  fs::path folder;
  std::vector<Kept> best;               // of all epochs, the best one first
  std::optional<Kept> last;             // the last epoch
  std::vector<fs::path> unlisted = {};  // files of other epochs that must go
};

void write_index(const FolderFiles& files) {
  nlohmann::json index;
  index["best"] = files.best.empty() ? nlohmann::json() : to_json(files.best.front());
  index["last"] = nlohmann::json();
  if (files.last) {
    Kept last = *files.last;
    last.path = files.folder / kLastName;
    index["last"] = to_json(last);
  }
  index["kept"] = nlohmann::json::array();
  for (const auto& kept : files.best) index["kept"].push_back(to_json(kept));
  write_file_atomically(files.folder / "_metrics.json", index.dump(2) + "\n");
}

// If the process is killed in between, all files that last.pth or its predecessor lists are there.
void update_folder(const FolderFiles& files) {
  if (files.best.empty()) {
    fs::remove(files.folder / kBestName);
  } else {
    link_file_atomically(files.best.front().path, files.folder / kBestName);
  }
  write_index(files);
  for (const auto& path : files.unlisted) fs::remove(path);
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
  keep_best();
  last_ = kept;
  is_behind_ = false;
  const bool among_best = std::ranges::count(best_, kept.epoch, &Kept::epoch) > 0;
  if (!among_best) dropped_.insert(kept.path);  // may exist from before a resume
  const FolderFiles files{
      .folder = options_.folder, .best = best_, .last = last_, .unlisted = unlisted()};
  for (const auto& path : files.unlisted) dropped_.erase(path);
  return [files, among_best](const StateDict& state) {
    if (among_best) save(files.last->path, state);
    save(files.folder / kLastName, state);
    update_folder(files);
  };
}

void Store::keep_best() {
  while (best_.size() > static_cast<std::size_t>(options_.keep_best)) {
    dropped_.insert(best_.back().path);
    best_.pop_back();
  }
}

// The files that can be removed when the list of now is on the disk.
std::vector<fs::path> Store::unlisted() const {
  std::set<fs::path> paths = dropped_;
  if (is_resumed_) {
    for (const auto& path : others(options_.folder, last_path())) paths.insert(path);
  }
  for (const Kept& kept : best_) paths.erase(kept.path);
  for (const fs::path& path : needed_) paths.erase(path);
  return {paths.begin(), paths.end()};
}

// Inserted after those with the same score, so the first epoch that reached it stays the best.
void Store::insert(const Kept& kept) {
  const auto better = [this](const Kept& a, const Kept& b) {
    return is_better(a.score, b.score, options_.better);
  };
  best_.insert(std::ranges::upper_bound(best_, kept, better), kept);
}

Store::Write Store::decide_last() {
  const FolderFiles files{
      .folder = options_.folder, .best = best_, .last = last_, .unlisted = unlisted()};
  return [files, was_behind = std::exchange(is_behind_, false)](const StateDict& state) {
    save(files.folder / kLastName, state);
    if (was_behind) update_folder(files);
  };
}

void Store::need_listed() {
  std::vector<fs::path> listed;
  for (const Kept& kept : best_) listed.push_back(kept.path);
  need(std::move(listed));
}

void Store::need(std::vector<fs::path> paths) {
  needed_ = std::move(paths);
  if (is_behind_) return;  // the folder has the files of another list
  for (const auto& path : unlisted()) {
    fs::remove(path);
    dropped_.erase(path);
  }
}

std::optional<fs::path> Store::best_file() const {
  if (best_.empty()) return std::nullopt;
  std::error_code ignored;
  const bool is_linked = !is_behind_ || fs::equivalent(best_path(), best_.front().path, ignored);
  return is_linked ? best_path() : best_.front().path;
}

namespace {

StateDict entry_of(const Kept& kept) {
  return {{"epoch", kept.epoch}, {"metrics", to_state(kept.metrics)}};
}

Kept kept_from(const StateDict& entry, const fs::path& folder) {
  Kept kept;
  kept.epoch = entry.get<std::int64_t>("epoch");
  kept.metrics = metrics_from_state(entry.get<StateDict>("metrics"));
  kept.path = folder / epoch_name(kept.epoch);
  return kept;
}

}  // namespace

StateDict Store::state() const {
  StateList kept;
  for (const auto& entry : best_) kept.push_back(entry_of(entry));
  StateDict state{{"best", kept}};
  if (last_) state.set("last", entry_of(*last_));
  return state;
}

void Store::load_state(const StateDict& state, const Score& score) {
  best_.clear();
  for (const auto& value : state.get<StateList>("best")) {
    const auto* entry = value.get_if<StateDict>();
    if (entry == nullptr) throw CheckpointError("best: expected dictionaries in the list");
    Kept kept = kept_from(*entry, options_.folder);
    const auto scored = score(kept.epoch, kept.metrics);
    if (!scored || std::isnan(*scored) || !fs::exists(kept.path)) continue;
    kept.score = *scored;
    insert(kept);
  }
  keep_best();
  last_.reset();
  if (state.contains("last")) {  // an older file does not have it
    last_ = kept_from(state.get<StateDict>("last"), options_.folder);
    last_->score =
        score(last_->epoch, last_->metrics).value_or(std::numeric_limits<double>::quiet_NaN());
  }
  is_behind_ = is_resumed_ = true;
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

#include "lockstep/checkpoint/store.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <limits>
#include <map>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/warn.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/state/hash.h"

namespace lockstep::checkpoint {
namespace fs = std::filesystem;
namespace {

constexpr const char* kBestName = "best.pth";
constexpr const char* kLastName = "last.pth";

constexpr const char* kIndexName = "_metrics.json";
constexpr const char* kNeeded = "needed";

std::string epoch_name(std::int64_t epoch) {
  return fmt::format("epoch.{:04}.pth", epoch);
}

std::string usual_name(const Kept& kept) {
  return kept.step ? fmt::format("step.{:08}.pth", *kept.step) : epoch_name(kept.epoch);
}

std::string file_name(const Kept& kept) {
  return kept.path.empty() ? usual_name(kept) : kept.path.filename().string();
}

nlohmann::json to_json(const Kept& kept) {
  nlohmann::json metrics = nlohmann::json::object();
  for (const auto& [loader, values] : kept.metrics) metrics[loader] = values;
  nlohmann::json entry{{"epoch", kept.epoch},
                       {"_score_", kept.score},
                       {"metrics", metrics},
                       {"checkpoint", kept.path.filename().string()}};
  if (kept.step) entry["step"] = *kept.step;
  return entry;
}

using Moment = std::pair<std::int64_t, std::int64_t>;  // epoch, and step inside of it

// A list in the index of the folder. An index that cannot be read has empty lists.
nlohmann::json list_in_index(const fs::path& folder, const char* key) {
  if (!fs::exists(folder / kIndexName)) return nlohmann::json::array();
  const auto index = nlohmann::json::parse(read_file(folder / kIndexName), nullptr, false);
  if (!index.is_object() || !index.contains(key) || !index[key].is_array()) {
    return nlohmann::json::array();
  }
  return index[key];
}

// Files that are in the folder only because the run may still go back to an earlier moment.
std::vector<fs::path> needed_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& name : list_in_index(folder, kNeeded)) {
    if (name.is_string()) files.push_back(folder / fs::path(name.get<std::string>()).filename());
  }
  return files;
}

// The files that the index of the folder lists, with the newest last. A file that the user named
// can only be found in this way.
std::vector<std::pair<Moment, fs::path>> listed_files(const fs::path& folder) {
  std::vector<std::pair<Moment, fs::path>> files;
  for (const auto& entry : list_in_index(folder, "kept")) {
    if (!entry.is_object()) continue;
    const auto name = entry.find("checkpoint"), epoch = entry.find("epoch");
    if (name == entry.end() || !name->is_string()) continue;
    if (epoch == entry.end() || !epoch->is_number_integer()) continue;
    const fs::path path = folder / fs::path(name->get<std::string>()).filename();
    const auto step = entry.find("step");
    const bool is_inside = step != entry.end() && step->is_number_integer();
    // A step is before the end of its epoch.
    const Moment moment{epoch->get<std::int64_t>(), is_inside
                                                        ? step->get<std::int64_t>()
                                                        : std::numeric_limits<std::int64_t>::max()};
    if (fs::exists(path)) files.emplace_back(moment, path);
  }
  return files;
}

// Checkpoints in the folder other than `except`: last.pth first, then the others, newest first.
// best.pth is not listed, because it is another name for one of these.
std::vector<fs::path> others(const fs::path& folder, const fs::path& except) {
  constexpr auto kNewest = std::numeric_limits<std::int64_t>::max();
  std::map<Moment, fs::path, std::greater<>> by_moment;
  for (const auto& [moment, path] : listed_files(folder)) by_moment[moment] = path;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name == kLastName) by_moment[{kNewest, kNewest}] = entry.path();
    int epoch = 0;
    if (std::sscanf(name.c_str(), "epoch.%d.pth", &epoch) == 1 && name == epoch_name(epoch)) {
      by_moment[{epoch, kNewest}] = entry.path();
    }
  }
  std::vector<fs::path> paths;
  for (auto& [moment, path] : by_moment) {
    if (path != except) paths.push_back(path);
  }
  return paths;
}

// The decision about the files in the folder.
struct FolderFiles {
  fs::path folder;
  std::vector<Kept> best;               // of all epochs, the best one first
  std::optional<Kept> last;             // the last epoch
  std::vector<Kept> steps = {};         // saved inside epochs
  std::vector<fs::path> unlisted = {};  // files of other epochs that must go
  std::vector<fs::path> needed = {};    // files of other epochs that must stay for now
};

// Without a score it is not the best, although it may be kept.
const Kept* best_of(const std::vector<Kept>& epochs) {
  return epochs.empty() || std::isnan(epochs.front().score) ? nullptr : &epochs.front();
}

void write_index(const FolderFiles& files) {
  nlohmann::json index;
  const Kept* const best = best_of(files.best);
  index["best"] = best == nullptr ? nlohmann::json() : to_json(*best);
  index["last"] = nlohmann::json();
  if (files.last) {
    Kept last = *files.last;
    last.path = files.folder / kLastName;
    index["last"] = to_json(last);
  }
  index["kept"] = nlohmann::json::array();
  for (const auto* const list : {&files.best, &files.steps}) {
    for (const auto& kept : *list) index["kept"].push_back(to_json(kept));
  }
  const auto is_kept = [&](const fs::path& path) {
    return std::ranges::count(files.best, path, &Kept::path) > 0 ||
           std::ranges::count(files.steps, path, &Kept::path) > 0;
  };
  for (const auto& path : files.needed) {
    if (!is_kept(path)) index[kNeeded].push_back(path.filename().string());
  }
  write_file_atomically(files.folder / kIndexName, index.dump(2) + "\n");
}

// The index does not name needed files any more. The rest of it stays: a save may have failed. If
// it cannot be written, a resume only looks for files that are gone.
void forget_needed(const fs::path& folder) try {
  if (needed_files(folder).empty()) return;
  auto index = nlohmann::json::parse(read_file(folder / kIndexName));
  index.erase(kNeeded);
  write_file_atomically(folder / kIndexName, index.dump(2) + "\n");
} catch (const std::exception& error) {
  warn(fmt::format("the list of checkpoints still names files that were removed: {}",
                   message_of(error)));
}

// If the process is killed in between, all files that last.pth or its predecessor lists are there.
void update_folder(const FolderFiles& files) {
  if (const Kept* const best = best_of(files.best)) {
    link_file_atomically(best->path, files.folder / kBestName);
  } else {
    fs::remove(files.folder / kBestName);
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
  kept.path = options_.folder / file_name(epoch);
  // An epoch that runs again after a resume replaces its earlier result.
  std::erase_if(best_, [&](const Kept& other) {
    if (other.epoch == kept.epoch) dropped_.insert(other.path);
    return other.epoch == kept.epoch;
  });
  if (!std::isnan(kept.score) || options_.keep_all) insert(kept);
  keep_best();
  last_ = kept;
  is_behind_ = false;
  const bool among_best = std::ranges::count(best_, kept.epoch, &Kept::epoch) > 0;
  if (!among_best) dropped_.insert(kept.path);  // may exist from before a resume
  const FolderFiles files{.folder = options_.folder,
                          .best = best_,
                          .last = last_,
                          .steps = steps_,
                          .unlisted = unlisted(),
                          .needed = needed_};
  for (const auto& path : files.unlisted) dropped_.erase(path);
  return [files, among_best](const StateDict& state) {
    if (among_best) save(files.last->path, state);
    save(files.folder / kLastName, state);
    update_folder(files);
  };
}

void Store::keep_best() {
  if (options_.keep_all) return;
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
  for (const auto* const list : {&best_, &steps_}) {
    for (const Kept& kept : *list) paths.erase(kept.path);
  }
  for (const fs::path& path : needed_) paths.erase(path);
  return {paths.begin(), paths.end()};
}

// The best stays in front until another one is better by more than min_delta. The others are in the
// order of their scores.
void Store::insert(const Kept& kept) {
  const double delta =
      options_.better == Better::kSmaller ? -options_.min_delta : options_.min_delta;
  const Kept* const best = best_of(best_);
  const bool is_best =
      !std::isnan(kept.score) &&
      (best == nullptr || is_better(kept.score, best->score + delta, options_.better));
  if (!is_best && !best_.empty()) return insert_by_score(kept);
  std::optional<Kept> earlier;
  if (best != nullptr) {
    earlier = *best;
    best_.erase(best_.begin());
  }
  best_.insert(best_.begin(), kept);
  if (earlier) insert_by_score(*earlier);
}

// Not before the first one. Of equal scores, that of the earlier epoch comes first; those without a
// score come last.
void Store::insert_by_score(const Kept& kept) {
  const auto comes_before = [this](const Kept& a, const Kept& b) {
    if (std::isnan(a.score) != std::isnan(b.score)) return std::isnan(b.score);
    if (is_better(a.score, b.score, options_.better)) return true;
    return !is_better(b.score, a.score, options_.better) && a.epoch < b.epoch;
  };
  const auto first = best_.begin() + 1;
  best_.insert(std::upper_bound(first, best_.end(), kept, comes_before), kept);
}

Store::Write Store::decide_last() {
  const FolderFiles files{.folder = options_.folder,
                          .best = best_,
                          .last = last_,
                          .steps = steps_,
                          .unlisted = unlisted(),
                          .needed = needed_};
  return [files, was_behind = std::exchange(is_behind_, false)](const StateDict& state) {
    save(files.folder / kLastName, state);
    if (was_behind) update_folder(files);
  };
}

Store::Write Store::decide_step(const Kept& step) {
  Kept kept = step;
  kept.score = std::numeric_limits<double>::quiet_NaN();
  kept.path = options_.folder / file_name(step);
  std::erase_if(steps_, [&](const Kept& other) { return other.step == kept.step; });
  steps_.push_back(kept);
  is_behind_ = false;
  const FolderFiles files{.folder = options_.folder,
                          .best = best_,
                          .last = last_,
                          .steps = steps_,
                          .unlisted = unlisted(),
                          .needed = needed_};
  for (const auto& path : files.unlisted) dropped_.erase(path);
  return [files](const StateDict& state) {
    save(files.steps.back().path, state);
    save(files.folder / kLastName, state);
    update_folder(files);
  };
}

const Kept* Store::best_epoch() const {
  return best_of(best_);
}

void Store::need_listed() {
  std::vector<fs::path> listed;
  for (const auto* const list : {&best_, &steps_}) {
    for (const Kept& kept : *list) listed.push_back(kept.path);
  }
  need(std::move(listed));
}

void Store::need(std::vector<fs::path> paths) {
  needed_ = std::move(paths);
  if (is_behind_) return;  // the folder has the files of another list
  const std::vector<fs::path> removable = unlisted();
  std::vector<fs::path> named;
  if (!removable.empty()) named = needed_files(options_.folder);
  for (const auto& path : removable) {
    // If a write has failed, last.pth and the index may still list this file as one that is kept.
    if (std::ranges::find(named, path) == named.end()) continue;
    fs::remove(path);
    dropped_.erase(path);
  }
  if (needed_.empty()) forget_needed(options_.folder);
}

std::optional<fs::path> Store::best_file() const {
  const Kept* const best = best_epoch();
  if (best == nullptr) return std::nullopt;
  std::error_code ignored;
  const bool is_linked = !is_behind_ || fs::equivalent(best_path(), best->path, ignored);
  return is_linked ? best_path() : best->path;
}

namespace {

StateDict entry_of(const Kept& kept) {
  StateDict entry{{"epoch", kept.epoch}, {"metrics", to_state(kept.metrics)}};
  if (kept.step) entry.set("step", *kept.step);
  const std::string name = kept.path.filename().string();
  if (name != usual_name(kept)) entry.set("file", name);
  return entry;
}

Kept kept_from(const StateDict& entry, const fs::path& folder) {
  Kept kept;
  kept.epoch = entry.get<std::int64_t>("epoch");
  kept.score = std::numeric_limits<double>::quiet_NaN();
  kept.metrics = metrics_from_state(entry.get<StateDict>("metrics"));
  if (entry.contains("step")) kept.step = entry.get<std::int64_t>("step");
  // Only the name: a file of unknown origin must not make the run use files of other folders.
  kept.path = folder / fs::path(entry.get_or("file", usual_name(kept))).filename();
  return kept;
}

StateList list_of(const std::vector<Kept>& all) {
  StateList entries;
  for (const Kept& kept : all) entries.push_back(entry_of(kept));
  return entries;
}

std::vector<Kept> kept_in(const StateList& entries, const fs::path& folder, const char* what) {
  std::vector<Kept> all;
  for (const auto& value : entries) {
    const auto* entry = value.get_if<StateDict>();
    if (entry == nullptr) throw CheckpointError("{}: expected dictionaries in the list", what);
    all.push_back(kept_from(*entry, folder));
  }
  return all;
}

// Those whose files still exist.
std::vector<Kept> existing(std::vector<Kept> all) {
  std::erase_if(all, [](const Kept& kept) { return !fs::exists(kept.path); });
  return all;
}

// Whether a file is the checkpoint of that epoch. An epoch that ran again has other metrics.
bool is_checkpoint_of(const Kept& kept, const StateDict& content) {
  const StateDict where = content.get_or("run", content);  // weights alone have no run
  return where.contains("epoch") && where.get<std::int64_t>("epoch") == kept.epoch &&
         content_hash(content.get_or("epoch_metrics", StateDict())) ==
             content_hash(to_state(kept.metrics));
}

// best.pth can be the only name of the best epoch's file: a user may have copied only last.pth and
// best.pth. The file gets its other name back, so that only a better epoch replaces it.
void name_best_again(const std::vector<Kept>& all, const fs::path& folder) {
  const fs::path best = folder / kBestName;
  const bool is_complete =
      std::ranges::all_of(all, [](const Kept& kept) { return fs::exists(kept.path); });
  if (is_complete || !fs::exists(best)) return;
  std::error_code ignored;
  const bool has_other_name = std::ranges::any_of(
      all, [&](const Kept& kept) { return fs::equivalent(kept.path, best, ignored); });
  if (has_other_name) return;  // without reading the file
  StateDict content;
  try {
    content = load(best);
  } catch (const CheckpointError& error) {
    warn(fmt::format("{}; it does not stay the best", error.what()));
    return;
  }
  for (const Kept& kept : all) {
    if (fs::exists(kept.path) || !is_checkpoint_of(kept, content)) continue;
    link_file_atomically(best, kept.path);
  }
}

}  // namespace

StateDict Store::state() const {
  StateDict state{{"best", list_of(best_)}};
  if (last_) state.set("last", entry_of(*last_));
  if (!steps_.empty()) state.set("steps", list_of(steps_));
  return state;
}

void Store::load_state(const StateDict& state, const Score& score) {
  const double none = std::numeric_limits<double>::quiet_NaN();
  const auto best = kept_in(state.get<StateList>("best"), options_.folder, "best");
  name_best_again(best, options_.folder);
  best_.clear();
  for (Kept& kept : existing(best)) {
    kept.score = score(kept.epoch, kept.metrics).value_or(none);
    if (!std::isnan(kept.score) || options_.keep_all) insert(kept);
  }
  keep_best();
  steps_ = existing(kept_in(state.get_or<StateList>("steps", {}), options_.folder, "steps"));
  last_.reset();
  if (state.contains("last")) {  // an older file does not have it
    last_ = kept_from(state.get<StateDict>("last"), options_.folder);
    last_->score = score(last_->epoch, last_->metrics).value_or(none);
  }
  for (const auto& path : needed_files(options_.folder)) dropped_.insert(path);
  is_behind_ = is_resumed_ = true;
}

namespace {

// The last entry of our files is the checksum. If the name of this entry is damaged, the file must
// not pass for one without a checksum.
bool ends_with_hash(const StateDict& state) {
  if (state.size() == 0) return false;
  const auto* const text = std::prev(state.end())->second.get_if<std::string>();
  return text != nullptr && text->size() == 16 &&
         text->find_first_not_of("0123456789abcdef") == std::string::npos;
}

// A file that the user named. Python may have changed a checkpoint of ours and saved it again; then
// it has no checksum.
StateDict load_named_file(const fs::path& path) {
  auto [state, is_ours] = read(path);
  if (is_ours) return std::move(state);
  if (ends_with_hash(state)) {
    throw CheckpointError("checkpoint {}: damaged: its last entry is '{}', expected '{}'",
                          path.string(), printable(std::prev(state.end())->first), kChecksumKey);
  }
  if (!state.contains("run") || !state.contains("model_state_dict")) {
    throw CheckpointError(
        "checkpoint {}: was not written by Lockstep: it has no 'run', which says where the run "
        "continues; to begin a run with its weights, set weights instead of resume",
        path.string());
  }
  warn(
      fmt::format("checkpoint {}: has no checksum, because Lockstep did not write it; its content "
                  "is taken as it is",
                  path.string()));
  return std::move(state);
}

}  // namespace

Loaded load_by_name(const std::string& name, const std::optional<fs::path>& folder) {
  std::error_code ignored;  // for a path without access, reading it reports the reason
  if (fs::is_regular_file(name, ignored)) return {load_named_file(name), name};
  if (!folder) {
    throw CheckpointError(
        "resume '{}': no such file, and there is no logdir to look for a "
        "checkpoint of that name",
        name);
  }
  fs::path wanted = *folder / name;
  if (!fs::is_regular_file(wanted, ignored) && !name.ends_with(".pth")) wanted += ".pth";
  if (!fs::is_regular_file(wanted, ignored)) {
    throw CheckpointError(
        "resume '{}': no such file, and no {}; expected a path, or 'best' or "
        "'last' of an earlier run in the logdir",
        name, wanted.string());
  }
  std::string damage;
  try {
    return {load_named_file(wanted), wanted};
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

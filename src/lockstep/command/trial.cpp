#include "lockstep/command/trial.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/log/csv_table.h"

namespace lockstep::command {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr std::array<std::pair<Trial::Status, const char*>, 3> kStatusNames = {
    {{Trial::Status::kFinished, "finished"},
     {Trial::Status::kStopped, "stopped"},
     {Trial::Status::kFailed, "failed"}}};

Trial::Status status_of(const std::string& name) {
  for (const auto& [status, known] : kStatusNames) {
    if (name == known) return status;
  }
  throw Error("status: expected finished, stopped or failed, got '{}'", name);
}

// The epochs that the trial has trained, as far as it is known.
std::int64_t epochs_of(const Trial& trial) {
  return trial.scores.empty() ? 0 : trial.scores.rbegin()->first;
}

// The mean of the two middle ones if their number is even.
double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// The best score of a trial up to an epoch. Nothing if it has none until there, or if it did not
// train as long, or if it failed.
std::optional<double> best_until(const Trial& trial, std::int64_t epoch) {
  if (epochs_of(trial) < epoch || trial.status == Trial::Status::kFailed) return std::nullopt;
  std::optional<double> best;
  for (const auto& [when, score] : trial.scores) {
    if (when <= epoch && (!best || is_better(score, *best, trial.better))) best = score;
  }
  return best;
}

}  // namespace

const char* name_of(Trial::Status status) {
  return std::ranges::find(kStatusNames, status, [](const auto& item) { return item.first; })
      ->second;
}

std::string trial_name(std::int64_t number) {
  return fmt::format("trial.{:04}", number);
}

void write_trial(const fs::path& folder, const Trial& trial) {
  ordered_json values = ordered_json::object();
  for (const auto& [path, value] : trial.values) values[path] = value;
  ordered_json scores = ordered_json::array();
  for (const auto& [epoch, score] : trial.scores) {
    scores.push_back(ordered_json::array({epoch, score}));
  }
  ordered_json json = {
      {"trial", trial.number}, {"status", name_of(trial.status)},
      {"values", values},      {"best_epoch", trial.best_epoch},
      {"best_score", nullptr}, {"larger_is_better", trial.better == Better::kLarger},
      {"scores", scores},      {"weights_hash", trial.weights_hash},
      {"error", trial.error}};
  if (trial.best_epoch > 0) json["best_score"] = trial.best_score;
  make_directories(folder);
  write_file_atomically(folder / "trial.json",
                        json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n");
}

std::optional<Trial> read_trial(const fs::path& folder) {
  const fs::path path = folder / "trial.json";
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::nullopt;
  return reading({.path = path}, [&] {
    const auto json = ordered_json::parse(read_file(path));
    Trial trial{.number = json.at("trial"),
                .status = status_of(json.at("status")),
                .best_epoch = json.at("best_epoch"),
                .better = json.at("larger_is_better") ? Better::kLarger : Better::kSmaller,
                .weights_hash = json.at("weights_hash"),
                .error = json.at("error")};
    if (trial.best_epoch > 0) trial.best_score = json.at("best_score");
    for (const auto& [name, value] : json.at("values").items()) {
      trial.values.emplace_back(name, value.get<std::string>());
    }
    for (const auto& item : json.at("scores")) {
      trial.scores[item.at(0).get<std::int64_t>()] = item.at(1).get<double>();
    }
    return trial;
  });
}

std::vector<Trial> ranked(std::vector<Trial> trials) {
  std::ranges::stable_sort(trials, [](const Trial& a, const Trial& b) {
    if (a.best_epoch == 0 || b.best_epoch == 0) return a.best_epoch > 0 && b.best_epoch == 0;
    return is_better(a.best_score, b.best_score, a.better);
  });
  return trials;
}

std::string trial_table(const std::vector<Trial>& trials, const TrialTable& table) {
  std::vector<std::vector<std::string>> rows = {{"trial", "status", "epoch", table.metric}};
  if (!trials.empty()) {
    for (const auto& [path, value] : trials.front().values) rows.front().push_back(path);
  }
  for (const Trial& trial : ranked(trials)) {
    if (rows.size() > table.most) break;
    const bool has_score = trial.best_epoch > 0;
    rows.push_back({std::to_string(trial.number), name_of(trial.status),
                    has_score ? std::to_string(trial.best_epoch) : "-",
                    has_score ? fmt::format("{:.6g}", trial.best_score) : "-"});
    for (const auto& [path, value] : trial.values) rows.back().push_back(value);
  }
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}  ", row[i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  if (trials.size() + 1 > rows.size()) {
    text += fmt::format("… and {} more in results.csv\n", trials.size() + 1 - rows.size());
  }
  return text;
}

std::string trials_as_csv(const std::vector<Trial>& trials, const std::string& metric) {
  std::vector<std::string> header = {"trial", "status", "epochs", "best_epoch", metric};
  if (!trials.empty()) {
    for (const auto& [path, value] : trials.front().values) header.push_back(path);
  }
  header.insert(header.end(), {"weights", "error"});
  std::string text;
  const auto add = [&](const std::vector<std::string>& row) {
    std::vector<std::string> cells;
    for (const std::string& item : row) cells.push_back(csv_cell(item));
    text += join(cells, ",") + "\n";
  };
  add(header);
  for (const Trial& trial : trials) {
    const bool has_score = trial.best_epoch > 0;
    std::vector<std::string> row = {std::to_string(trial.number), name_of(trial.status),
                                    std::to_string(epochs_of(trial)),
                                    has_score ? std::to_string(trial.best_epoch) : "",
                                    has_score ? fmt::format("{}", trial.best_score) : ""};
    for (const auto& [path, value] : trial.values) row.push_back(value);
    row.insert(row.end(), {trial.weights_hash, trial.error});
    add(row);
  }
  return text;
}

void TrialCallback::judge(State& state) {
  const Selection& selection = state.selection;
  const Better better = selection.better();
  trial_ = {.better = better};
  for (const auto& [epoch, metrics] : state.history) {
    const auto score = selection.score(epoch, metrics);
    if (!score || !std::isfinite(*score)) continue;
    trial_.scores[epoch] = *score;
    if (trial_.best_epoch > 0 && !is_better(*score, trial_.best_score, better)) continue;
    trial_.best_epoch = epoch;
    trial_.best_score = *score;
  }
  if (!rule_ || state.history.empty()) return;
  const std::int64_t epoch = state.history.rbegin()->first;
  const bool is_evaluated = selection.score(epoch, state.history.at(epoch)).has_value();
  const bool is_early = epoch < rule_->warmup_epochs || epoch >= state.progress.num_epochs;
  if (is_early || !is_evaluated || std::ssize(before_) < rule_->warmup_trials) return;
  std::vector<double> others;
  for (const Trial& other : before_) {
    if (const auto reached = best_until(other, epoch)) others.push_back(*reached);
  }
  if (others.empty()) return;
  const double middle = median(std::move(others));
  // A trial without a finite score is worse than any other.
  const bool has_score = trial_.best_epoch > 0;
  if (has_score && !is_better(middle, trial_.best_score, better)) return;
  trial_.status = Trial::Status::kStopped;
  state.request_stop(fmt::format(
      "{} {} is worse than the median of the trials before, {}", lockstep::describe(selection.key),
      has_score ? format_metric(trial_.best_score) : "nan", format_metric(middle)));
}

}  // namespace lockstep::command

// What `lockstep tune` knows about its trials: their files, their table, and when a trial is
// stopped because others are better.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/train/callback.h"
#include "lockstep/train/selection.h"

namespace lockstep::command {

// A trial that is over.
struct Trial {
  enum class Status {
    kFinished,
    kStopped,  // early, because other trials were better
    kFailed,   // with an exception
  };

  std::int64_t number = 0;  // from 1
  Status status = Status::kFinished;
  std::vector<std::pair<std::string, std::string>> values = {};  // by path, as text
  std::map<std::int64_t, double> scores = {};                    // by epoch
  std::int64_t best_epoch = 0;  // 0: there is none, as in a trial that failed
  double best_score = 0;
  Better better = Better::kSmaller;  // which of two scores is the better one
  std::string weights_hash = {};
  std::string error = {};  // of a trial that failed
};

const char* name_of(Trial::Status status);

// "trial.0007"
std::string trial_name(std::int64_t number);

// trial.json in the folder of the trial. The trial is over if the file is there.
void write_trial(const std::filesystem::path& folder, const Trial& trial);
std::optional<Trial> read_trial(const std::filesystem::path& folder);

// All trials, the best one first. Trials without a score are last.
std::vector<Trial> ranked(std::vector<Trial> trials);

// A table for people, the best trial first. Of many trials it has the first `most`.
struct TrialTable {
  std::string metric = {};  // the title of its column: "valid/loss"
  std::size_t most = 30;
};
std::string trial_table(const std::vector<Trial>& trials, const TrialTable& table);

// results.csv: trial, status, epochs, best epoch, score, one column for each value, weights, error.
// The trials are in the order of their numbers.
std::string trials_as_csv(const std::vector<Trial>& trials, const std::string& metric);

// The median rule: at the end of an epoch, a trial is stopped if its best score so far is worse
// than the median of what the trials before it had reached by the same epoch.
struct MedianRule {
  std::int64_t warmup_trials = 5;  // no trial is stopped before so many others are over
  std::int64_t warmup_epochs = 1;  // no trial is stopped before it has trained so many epochs
};

// Observes a trial, and stops it by the rule.
class TrialCallback : public Callback {
 public:
  // `before`: the trials that are over. Without a rule no trial is stopped.
  TrialCallback(std::optional<MedianRule> rule, std::vector<Trial> before)
      : rule_(rule), before_(std::move(before)) {}

  std::string name() const override { return "TrialCallback"; }
  CallbackTraits traits() const override {
    return {.order = Order::kExternalExtra,
            .ranks = Ranks::kPrimary,
            .uses_gradients = false,
            .needs_training = true,
            .changes_batch = false,
            .metric_names = no_metrics()};
  }
  // They read the history of the run, which is in checkpoints, so a trial that was interrupted
  // after it was stopped is stopped again.
  void on_run_start(State& state) override { judge(state); }
  void on_epoch_end(State& state) override { judge(state); }

  // The trial so far: its scores, and which of them is the best. It is stopped if the rule said so.
  const Trial& trial() const { return trial_; }

 private:
  void judge(State& state);

  std::optional<MedianRule> rule_;
  std::vector<Trial> before_;
  Trial trial_;
};

}  // namespace lockstep::command

// The record of a run: its resolved config and its environment.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "lockstep/config/node.h"
#include "lockstep/train/callback.h"

namespace lockstep::recipe {

// The config that gives the same run again: the document without `resume`, which belongs to this
// start only.
std::string resolved_config(const config::Node& document);

// Versions, machine, command line and the environment variables that matter, as JSON.
std::string describe_environment();

// Both, under the names that checkpoints store them by: "config" and "environment".
std::map<std::string, std::string> run_documents(const config::Node& document);

// Writes them to logdir/configs, as config.yml and environment.json. `lockstep run -C
// logdir/configs` repeats the run. Files that an earlier start of the run wrote there are kept as
// config.1.yml and so on.
void write_documents(const std::filesystem::path& logdir,
                     const std::map<std::string, std::string>& documents);

// Writes the documents when the run begins. If a run fails before that, the record of the run
// before it stays.
class RecordCallback : public Callback {
 public:
  RecordCallback(std::filesystem::path logdir, std::map<std::string, std::string> documents)
      : logdir_(std::move(logdir)), documents_(std::move(documents)) {}

  std::string name() const override { return "RecordCallback"; }
  CallbackTraits traits() const override {
    return {.order = Order::kInternal,
            .ranks = Ranks::kPrimary,
            .uses_gradients = false,
            .changes_batch = false,
            .metric_names = no_metrics()};
  }
  void on_run_start(State& state) override {
    if (state.restarts == 0) write_documents(logdir_, documents_);
  }

 private:
  std::filesystem::path logdir_;
  std::map<std::string, std::string> documents_;
};

}  // namespace lockstep::recipe

// What a run was, written down: its config as it was resolved, and what it ran with.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "lockstep/config/node.h"
#include "lockstep/train/callback.h"

namespace lockstep::recipe {

// The config that gives the same run again: the document without what only this start asked for
// (a resume).
std::string resolved_config(const config::Node& document);

// Versions, machine, command and the variables that matter, as JSON.
std::string describe_environment();

// Both, as a run's checkpoints carry them: "config" and "environment".
std::map<std::string, std::string> run_documents(const config::Node& document);

// Writes them to logdir/configs, as config.yml and environment.json: `lockstep run -C
// logdir/configs` runs it again. What an earlier start of the run has written there stays, as
// config.1.yml and so on.
void write_documents(const std::filesystem::path& logdir,
                     const std::map<std::string, std::string>& documents);

// Writes them when the run begins: a run that cannot leaves the record of the one before it alone.
class RecordCallback : public Callback {
 public:
  RecordCallback(std::filesystem::path logdir, std::map<std::string, std::string> documents)
      : logdir_(std::move(logdir)), documents_(std::move(documents)) {}

  std::string name() const override { return "RecordCallback"; }
  Order order() const override { return Order::kInternal; }
  Ranks ranks() const override { return Ranks::kPrimary; }
  bool uses_gradients() const override { return false; }
  std::optional<std::vector<std::string>> metric_names() const override {
    return std::vector<std::string>();
  }
  void on_run_start(State&) override { write_documents(logdir_, documents_); }

 private:
  std::filesystem::path logdir_;
  std::map<std::string, std::string> documents_;
};

}  // namespace lockstep::recipe

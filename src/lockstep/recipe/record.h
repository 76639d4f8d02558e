// What a run was, written down: its config as it was resolved, and what it ran with.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "lockstep/config/node.h"

namespace lockstep::recipe {

// The config that gives the same run again: the document without what only this start asked for
// (a resume).
std::string resolved_config(const config::Node& document);

// Versions, machine, command and the variables that matter, as JSON.
std::string describe_environment();

// Both, as a run's checkpoints carry them: "config" and "environment".
std::map<std::string, std::string> run_documents(const config::Node& document);

// Writes them to logdir/configs, as config.yml and environment.json: `lockstep run -C
// logdir/configs` runs it again.
void write_documents(const std::filesystem::path& logdir,
                     const std::map<std::string, std::string>& documents);

}  // namespace lockstep::recipe

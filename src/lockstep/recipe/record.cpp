#include "lockstep/recipe/record.h"

#include <algorithm>
#include <fstream>

#include <fmt/chrono.h>
#include <nlohmann/json.hpp>
#include <sys/utsname.h>
#include <torch/version.h>

#include "lockstep/base/file.h"
#include "lockstep/base/version.h"
#include "lockstep/config/yaml.h"
#include "lockstep/process/affinity.h"
#include "lockstep/process/environment.h"
#include "lockstep/rendezvous/token.h"

namespace lockstep::recipe {
namespace {

namespace fs = std::filesystem;

// The program and its arguments, as the system reports them.
nlohmann::json command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

// Variables that change what is computed, or where. Other variables are not recorded, because they
// may be secrets.
bool is_of_interest(const std::string& name) {
  static const std::vector<std::string> prefixes = {"LOCKSTEP_", "OMP_",  "MKL_",  "OPENBLAS_",
                                                    "CUDA_",     "GLOO_", "NCCL_", "MALLOC_"};
  static const std::vector<std::string> names = {"RANK", "WORLD_SIZE", "LOCAL_RANK"};
  if (name == rendezvous::kTokenVariable) return false;  // the run's secret
  return std::ranges::find(names, name) != names.end() ||
         std::ranges::any_of(prefixes,
                             [&](const auto& prefix) { return name.starts_with(prefix); });
}

}  // namespace

std::string resolved_config(const config::Node& document) {
  config::Node resolved = document;
  resolved.erase("resume");
  for (const char* const group : {"args", "stages"}) {
    config::Node* const node = resolved.find(group);
    if (node == nullptr) continue;
    node->erase("resume");
    for (auto& [name, stage] : node->entries()) stage.erase("resume");
  }
  return config::to_yaml(resolved);
}

std::string describe_environment() {
  nlohmann::ordered_json json;
  json["lockstep"] = LOCKSTEP_VERSION;
  json["libtorch"] = TORCH_VERSION;
  json["compiler"] = __VERSION__;
  json["started"] = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  json["command"] = command_line();
  json["folder"] = std::filesystem::current_path().string();
  utsname system{};
  uname(&system);
  json["host"] = system.nodename;
  json["system"] = fmt::format("{} {} {}", system.sysname, system.release, system.machine);
  json["cpu"] = cpu_name();
  json["cores"] = process::usable_cores();
  json["variables"] = nlohmann::json::object();
  for (const auto& [name, value] : process::current_environment()) {
    if (is_of_interest(name)) json["variables"][name] = value;
  }
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::map<std::string, std::string> run_documents(const config::Node& document) {
  return {{"config", resolved_config(document)}, {"environment", describe_environment()}};
}

void write_documents(const std::filesystem::path& logdir,
                     const std::map<std::string, std::string>& documents) {
  const fs::path folder = logdir / "configs";
  make_directories(folder);
  const auto numbered = [&](const char* name, int n, const char* extension) {
    return folder / (n == 0 ? fmt::format("{}.{}", name, extension)
                            : fmt::format("{}.{}.{}", name, n, extension));
  };
  if (fs::exists(numbered("config", 0, "yml"))) {
    int n = 1;
    while (fs::exists(numbered("config", n, "yml"))) ++n;
    fs::rename(numbered("config", 0, "yml"), numbered("config", n, "yml"));
    std::error_code ignored;  // it may not be there
    fs::rename(numbered("environment", 0, "json"), numbered("environment", n, "json"), ignored);
  }
  write_file_atomically(numbered("config", 0, "yml"), documents.at("config"));
  write_file_atomically(numbered("environment", 0, "json"), documents.at("environment"));
}

}  // namespace lockstep::recipe

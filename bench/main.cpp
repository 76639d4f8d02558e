// lockstep_bench measures everything, compared with PyTorch if it has the same function.
//   lockstep_bench [--work A,B,...] [--output build/bench.json]
//   lockstep_bench run A [--workers 2] [--profile]     one training, only with Lockstep
#include <iostream>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "bench/collectives.h"
#include "bench/compare.h"
#include "bench/loading.h"
#include "bench/micro.h"
#include "bench/points.h"
#include "bench/workloads.h"
#include "lockstep/base/file.h"

namespace ls = lockstep;

namespace {

const std::vector<std::string> kCompared = {"A", "B", "C", "D",     "D64",
                                            "E", "F", "G", "start", "memory"};
const std::vector<std::string> kMicro = {"collectives", "optimizers", "gather", "saves",
                                         "activations", "points",     "I",      "N"};

std::vector<std::string> all_works() {
  std::vector<std::string> all = kMicro;
  all.insert(all.end(), kCompared.begin(), kCompared.end());
  return all;
}

int run_one(const std::string& name, const ls::bench::WorkOptions& options) {
  const auto result = ls::bench::run_workload(ls::bench::workload(name), options);
  std::cout << nlohmann::json{{"samples_per_second", result.samples_per_second},
                              {"loss", result.loss},
                              {"weights_norm", result.weights_norm},
                              {"first_step", result.first_step}}
            << '\n';
  return 0;
}

int run_works(const std::vector<std::string>& works, const std::string& output,
              const std::string& self) {
  nlohmann::json json = nlohmann::json::object();
  ls::bench::CompareOptions compared{.works = {}, .self = self};
  const ls::bench::LoadingOptions loading{
      .folder = std::filesystem::absolute(output).parent_path() / "bench-data"};
  for (const auto& work : works) {
    if (work == "collectives") {
      json[work] = ls::bench::run_collectives();
    } else if (work == "optimizers") {
      json[work] = ls::bench::run_optimizers();
    } else if (work == "gather") {
      json[work] = ls::bench::run_gather();
    } else if (work == "saves") {
      json[work] = ls::bench::run_saves();
    } else if (work == "activations") {
      json[work] = ls::bench::run_activations();
    } else if (work == "points") {
      json[work] = ls::bench::run_points(self);
    } else if (work == "I") {
      json[work] = ls::bench::run_images(loading);
    } else if (work == "N") {
      json[work] = ls::bench::run_rows(loading);
    } else {
      compared.works.push_back(work);
    }
  }
  if (!compared.works.empty()) json.update(ls::bench::compare(compared));
  ls::write_file_atomically(output, json.dump(2) + "\n");
  fmt::print("\nwritten to {}\n", output);
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("Lockstep's speed, against PyTorch's in the same run");
  std::vector<std::string> works = all_works();
  std::string output = "build/bench.json";
  app.add_option("--work", works, "what to measure, separated by commas")
      ->delimiter(',')
      ->check(CLI::IsMember(all_works()));
  app.add_option("--output", output, "JSON file for the results")->capture_default_str();

  std::string name;
  ls::bench::WorkOptions options;
  auto* run = app.add_subcommand("run", "run one training, only with Lockstep");
  run->add_option("name", name, "A, B, C, D, D64, E, F or G")->required();
  run->add_option("--workers", options.workers)->capture_default_str();
  run->add_option("--epochs", options.epochs)->capture_default_str();
  run->add_option("--max-restarts", options.max_restarts)->capture_default_str();
  run->add_flag("--profile", options.profile, "show where the time goes");
  CLI11_PARSE(app, argc, argv);
  if (*run) return run_one(name, options);
  return run_works(works, output, std::filesystem::canonical("/proc/self/exe"));
} catch (const std::exception& error) {
  std::cerr << "bench: " << error.what() << '\n';
  return 1;
}

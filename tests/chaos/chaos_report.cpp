#include "tests/chaos/chaos_report.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace lockstep::chaos {
namespace {

// "p50 0.12 s, p99 0.80 s", or "none"
std::string spread(const std::vector<double>& seconds) {
  if (seconds.empty()) return "none";
  return fmt::format("p50 {:.2f} s, p99 {:.2f} s", percentile(seconds, 50),
                     percentile(seconds, 99));
}

// The names of a scenario and of its group end with its moment and its fault.
std::string last_word(const std::string& text) {
  return text.substr(text.rfind(' ') + 1);
}

}  // namespace

double percentile(std::vector<double> values, double percent) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const double rank = std::ceil(percent / 100 * static_cast<double>(values.size()));
  return values[static_cast<std::size_t>(
                    std::clamp(rank, 1.0, static_cast<double>(values.size()))) -
                1];
}

void ChaosReport::GroupCounts::add(const FaultResult& result) {
  if (result.injected) ++faults;
  if (!result.injected && result.failure.empty()) ++missed;
  if (!result.failure.empty()) ++failures;
  if (!result.injected && !result.failure.empty()) ++failed_before;
  recoveries += result.recoveries;
  if (result.resumed) ++resumed;
  detection.insert(detection.end(), result.detection.begin(), result.detection.end());
  recovery.insert(recovery.end(), result.recovery.begin(), result.recovery.end());
}

void ChaosReport::add(const FaultResult& result) {
  total_.add(result);
  groups_[result.group].add(result);
  kinds_["fault " + last_word(result.group)].add(result);
  kinds_["moment " + last_word(result.name)].add(result);
}

std::vector<std::string> ChaosReport::never_injected() const {
  std::vector<std::string> kinds;
  for (const auto& [kind, counts] : kinds_) {
    if (counts.faults == 0 && counts.missed >= kEnough) kinds.push_back(kind);
  }
  return kinds;
}

std::string ChaosReport::table() const {
  std::string text =
      fmt::format("{:<36}{:>7}{:>9}{:>7}{:>11}{:>8}  {:<26}{}\n", "scenario", "faults", "failures",
                  "missed", "recoveries", "resumed", "detection", "recovery");
  for (const auto& [name, counts] : groups_) {
    text += fmt::format("{:<36}{:>7}{:>9}{:>7}{:>11}{:>8}  {:<26}{}\n", name, counts.faults,
                        counts.failures, counts.missed, counts.recoveries, counts.resumed,
                        spread(counts.detection), spread(counts.recovery));
  }
  return text;
}

std::string ChaosReport::last_line() const {
  return fmt::format(
      "chaos: {} faults, {} failures, {} recoveries, {} resumed; detection {}; recovery {}",
      total_.faults, total_.failures, total_.recoveries, total_.resumed, spread(total_.detection),
      spread(total_.recovery));
}

std::string to_json(const FaultResult& result) {
  const nlohmann::json json = {{"seed", result.seed},         {"name", result.name},
                               {"group", result.group},       {"injected", result.injected},
                               {"outcome", result.outcome},   {"recoveries", result.recoveries},
                               {"resumed", result.resumed},   {"detection", result.detection},
                               {"recovery", result.recovery}, {"seconds", result.seconds},
                               {"failure", result.failure}};
  // The output of a broken run may have any bytes.
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

FaultResult from_json(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  return {.seed = json.at("seed"),
          .name = json.at("name"),
          .group = json.at("group"),
          .injected = json.at("injected"),
          .outcome = json.at("outcome"),
          .recoveries = json.at("recoveries"),
          .resumed = json.at("resumed"),
          .detection = json.at("detection"),
          .recovery = json.at("recovery"),
          .seconds = json.at("seconds"),
          .failure = json.at("failure")};
}

}  // namespace lockstep::chaos

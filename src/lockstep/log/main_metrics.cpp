#include "lockstep/log/main_metrics.h"

#include <algorithm>
#include <cctype>

namespace lockstep {
namespace {

// Whether the name is an accuracy of k > 1, such as "accuracy03", which matters less to users.
bool is_top_k(std::string_view name) {
  constexpr std::string_view kAccuracy = "accuracy";
  const std::size_t at = name.find(kAccuracy);
  if (at == std::string_view::npos) return false;
  const std::string_view k = name.substr(at + kAccuracy.size());
  const bool numbered = k.size() >= 2 && std::isdigit(static_cast<unsigned char>(k[0])) != 0 &&
                        std::isdigit(static_cast<unsigned char>(k[1])) != 0;
  return numbered && !k.starts_with("01");
}

bool is_timer(std::string_view name) {
  return name.starts_with("_timer/");
}

bool is_main(std::string_view name) {
  if (name == "lr" || name == "momentum" || is_top_k(name)) return false;
  const std::size_t slash = name.find('/');
  if (slash == std::string_view::npos) return true;
  return name.substr(slash) == "/_macro" && name.substr(0, slash).find("f1") != name.npos;
}

}  // namespace

std::vector<std::string_view> main_metrics(const Metrics& metrics,
                                           const std::vector<std::string>& first) {
  std::vector<std::string_view> names;
  const auto add = [&](std::string_view name) {
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  };
  for (const std::string& name : first) {
    if (const auto found = metrics.find(name); found != metrics.end()) add(found->first);
  }
  for (const auto& [name, value] : metrics) {
    if (is_main(name)) add(name);
  }
  for (const auto& [name, value] : metrics) {
    if (is_timer(name)) add(name);
  }
  return names;
}

}  // namespace lockstep

#include "lockstep/log/mlflow_names.h"

#include <cctype>
#include <string_view>

#include <fmt/format.h>

#include "lockstep/base/text.h"
#include "lockstep/base/warn.h"

namespace lockstep {
namespace {

constexpr std::size_t kLongestName = 250;
constexpr std::size_t kRoomForNumber = 8;

bool is_accepted(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("-_./ ").find(c) != std::string_view::npos;
}

// Parts of a path that would lead elsewhere become "_".
std::string with_plain_parts(const std::string& name) {
  std::string out;
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    out += part.empty() || part == "." || part == ".." ? "_" : part;
    if (end == name.size()) return out;
    out += '/';
    begin = end + 1;
  }
}

std::string accepted_form(std::string name) {
  for (char& c : name) {
    if (!is_accepted(c)) c = '_';
  }
  if (name.size() > kLongestName) name.resize(kLongestName - kRoomForNumber);
  return with_plain_parts(name);
}

}  // namespace

const std::string& MlflowNames::accepted(const std::string& name) {
  if (const auto found = known_.find(name); found != known_.end()) return found->second;
  const std::string form = accepted_form(name);
  std::string chosen = form;
  for (int i = 2; !used_.insert(chosen).second; ++i) chosen = fmt::format("{}_{}", form, i);
  if (chosen != name && !warned_) {
    warned_ = true;
    warn(fmt::format(
        "MLflow accepts only letters, digits and - _ . / and spaces in a name, and no path like "
        "'..': '{}' is sent as '{}', and other such names are changed in the same way",
        excerpt(name), excerpt(chosen)));
  }
  return known_.try_emplace(name, std::move(chosen)).first->second;
}

}  // namespace lockstep

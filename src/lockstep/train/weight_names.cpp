#include "lockstep/train/weight_names.h"

#include <map>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep {
namespace {

// Whether the pattern fits the whole name. `stars` gets the text of each *.
bool fits(std::string_view pattern, std::string_view name, std::vector<std::string_view>& stars) {
  if (pattern.empty()) return name.empty();
  if (pattern.front() != '*') {
    return !name.empty() && name.front() == pattern.front() &&
           fits(pattern.substr(1), name.substr(1), stars);
  }
  for (std::size_t size = 0; size <= name.size(); ++size) {
    stars.push_back(name.substr(0, size));
    if (fits(pattern.substr(1), name.substr(size), stars)) return true;
    stars.pop_back();
  }
  return false;
}

// Applies the first rename that fits, and notes all that do.
std::string rename_by(const std::vector<WeightRename>& renames, const std::string& name,
                      std::vector<bool>& fitting) {
  std::optional<std::string> first;
  for (std::size_t i = 0; i < renames.size(); ++i) {
    const auto changed = renamed(renames[i], name);
    if (!changed) continue;
    fitting[i] = true;
    if (!first) first = changed;
  }
  return first.value_or(name);
}

void refuse_one_name_of_two(const std::vector<FileWeight>& all, const Weights& weights) {
  std::map<std::string, std::string> found;  // the name in the file, by the new one
  for (const FileWeight& weight : all) {
    const auto [other, is_new] = found.emplace(weight.name, weight.in_file);
    if (is_new) continue;
    throw CheckpointError("{}: '{}' and '{}' would both be called '{}'; change rename",
                          weights.path().string(), printable(other->second),
                          printable(weight.in_file), printable(weight.name));
  }
}

}  // namespace

bool is_same_weight(const torch::Tensor& one, const torch::Tensor& other) {
  if (one.dim() < 2 || one.numel() == 0) return false;
  if (one.sizes() != other.sizes() || one.scalar_type() != other.scalar_type()) return false;
  return one.equal(other) && one.ne(one.flatten()[0]).any().item<bool>();
}

std::optional<std::string> renamed(const WeightRename& rename, const std::string& name) {
  std::vector<std::string_view> stars;
  if (!fits(rename.from, name, stars)) return std::nullopt;
  std::string changed;
  std::size_t next = 0;
  for (const char c : rename.to) {
    if (c == '*') {
      changed += stars[next++];
    } else {
      changed += c;
    }
  }
  return changed;
}

std::vector<FileWeight> renamed_weights(const StateDict& file, const Weights& weights) {
  const WeightsOptions& options = weights.options();
  const std::string& prefix = options.remove_prefix;
  const std::string path = weights.path().string();
  std::vector<FileWeight> all;
  std::vector<std::string> names;  // without the prefix
  bool has_prefix = prefix.empty();
  std::vector<bool> fitting(options.rename.size(), false);
  for (const auto& [in_file, value] : file) {
    const auto* const tensor = value.get_if<torch::Tensor>();
    if (tensor == nullptr) {
      throw CheckpointError("{}: '{}' is {}, expected a tensor", path, printable(in_file),
                            value.kind());
    }
    const bool is_longer = in_file.size() > prefix.size() && in_file.starts_with(prefix);
    has_prefix = has_prefix || is_longer;
    names.push_back(is_longer ? in_file.substr(prefix.size()) : in_file);
    all.push_back({.in_file = in_file,
                   .name = options.add_prefix + rename_by(options.rename, names.back(), fitting),
                   .tensor = *tensor});
  }
  if (!has_prefix) {
    throw ConfigError("weights: remove_prefix: no weight of {} begins with '{}'; it has {}", path,
                      prefix, printable(list_some(names)));
  }
  for (std::size_t i = 0; i < fitting.size(); ++i) {
    if (fitting[i]) continue;
    const std::string& from = options.rename[i].from;
    throw ConfigError("weights: rename: '{}' matches no weight of {}; {}", from, path,
                      printable(suggest(from, names)));
  }
  refuse_one_name_of_two(all, weights);
  return all;
}

}  // namespace lockstep

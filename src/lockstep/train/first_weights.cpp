#include "lockstep/train/first_weights.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/data/describe.h"
#include "lockstep/train/weight_names.h"

namespace lockstep {
namespace {

bool is_listed(const std::vector<std::string>& patterns, const std::string& name) {
  return std::ranges::any_of(
      patterns, [&](const std::string& pattern) { return matches_pattern(pattern, name); });
}

// PyTorch counts batches since 0.4.1, and takes a file without the counts.
bool is_count_of_batches(std::string_view name) {
  return name == "num_batches_tracked" || name.ends_with(".num_batches_tracked");
}

bool can_convert(torch::ScalarType from, torch::ScalarType to) {
  const bool from_integer = c10::isIntegralType(from, /*includeBool=*/false);
  if (c10::isFloatingType(to)) return c10::isFloatingType(from) || from_integer;
  return from_integer && c10::isIntegralType(to, /*includeBool=*/false);
}

// Throws CheckpointError if a number does not fit into the type.
torch::Tensor converted_to(torch::ScalarType type, const FileWeight& weight) {
  const torch::Tensor& from = weight.tensor;
  const torch::Tensor to = from.to(type);
  const bool fits = c10::isFloatingType(type) ? to.isfinite().equal(from.isfinite())
                                              : to.to(from.scalar_type()).equal(from);
  if (fits) return to;
  throw CheckpointError("'{}' is {} in the file and has a number that is too large for {}",
                        printable(weight.in_file), c10::toString(from.scalar_type()),
                        c10::toString(type));
}

// Whether the file has this weight under another name, too.
bool is_second_name(const FileWeight& weight, const std::set<const FileWeight*>& taken) {
  return std::ranges::any_of(
      taken, [&](const FileWeight* other) { return is_same_weight(other->tensor, weight.tensor); });
}

using FileWeights = std::vector<FileWeight>;

// "the names fit with remove_prefix = 'backbone.'", if they do.
std::optional<std::string> prefix_hint(const NamedTensors& own, const FileWeights& file) {
  const auto prefix = [](const std::string& longer, const std::string& name) {
    const bool ends = longer.size() > name.size() && longer.ends_with("." + name);
    return ends ? longer.substr(0, longer.size() - name.size()) : "";
  };
  for (const auto& [name, tensor] : own) {
    for (const FileWeight& weight : file) {
      if (weight.tensor.sizes() != tensor.sizes()) continue;
      if (const auto more = prefix(weight.name, name); !more.empty()) {
        return fmt::format("the name '{}' would fit with remove_prefix = '{}'",
                           printable(weight.in_file), printable(more));
      }
      if (const auto less = prefix(name, weight.name); !less.empty()) {
        return fmt::format("the name '{}' would fit with add_prefix = '{}'",
                           printable(weight.in_file), less);
      }
    }
  }
  return std::nullopt;
}

// Compares the weights of a file with those of a model.
class WeightsFit {
 public:
  WeightsFit(const Model& model, const Weights& weights, const StateDict& file)
      : options_(weights.options()),
        path_(weights.path().string()),
        own_(model.weights()),
        file_(renamed_weights(file, weights)) {}

  FirstWeights make() {
    check_skip();
    std::map<std::string, const FileWeight*> by_name;
    for (const FileWeight& weight : file_) {
      if (!is_skipped(weight)) by_name.emplace(weight.name, &weight);
    }
    for (const auto& [name, tensor] : own_) {
      const auto found = by_name.find(name);
      const bool is_skipped = is_listed(options_.skip, name);
      if (is_skipped || found == by_name.end() || !take(name, tensor, *found->second)) {
        if (!is_skipped && found == by_name.end() && !is_count_of_batches(name)) {
          missing_.push_back(name);
        }
        keep(name, tensor);
      }
    }
    note_unused();
    check_taken();
    if (options_.strict) check_strict();
    return std::move(made_);
  }

 private:
  bool is_skipped(const FileWeight& weight) const {
    return is_listed(options_.skip, weight.in_file) || is_listed(options_.skip, weight.name);
  }

  void check_skip() const {
    if (options_.skip.empty()) return;
    std::vector<std::string> names;  // of the model, then of the file
    std::set<std::string> known;
    const auto add = [&](const std::string& name) {
      if (known.insert(name).second) names.push_back(name);
    };
    for (const auto& [name, tensor] : own_) add(name);
    for (const FileWeight& weight : file_) {
      add(weight.in_file);
      add(weight.name);
    }
    for (const std::string& pattern : options_.skip) {
      const auto fits = [&](const std::string& name) { return matches_pattern(pattern, name); };
      if (std::ranges::any_of(names, fits)) continue;
      throw ConfigError("weights: skip: '{}' matches no weight of the model or of {}; {}", pattern,
                        path_, printable(suggest(pattern, names)));
    }
  }

  bool take(const std::string& name, const torch::Tensor& own, const FileWeight& weight) {
    const torch::ScalarType type = own.scalar_type(), from = weight.tensor.scalar_type();
    if (weight.tensor.sizes() != own.sizes() || (from != type && !can_convert(from, type))) {
      misfits_.push_back(fmt::format("'{}' is {}, the model has {}", printable(weight.in_file),
                                     data::describe(weight.tensor), data::describe(own)));
      return false;
    }
    if (from != type) {
      made_.converted.insert(fmt::format("{} to {}", c10::toString(from), c10::toString(type)));
    }
    made_.state.set(name, from == type ? weight.tensor : converted(type, weight));
    taken_.insert(&weight);
    ++made_.taken;
    return true;
  }

  torch::Tensor converted(torch::ScalarType type, const FileWeight& weight) const {
    try {
      return converted_to(type, weight);
    } catch (const CheckpointError& error) {
      throw CheckpointError("{}: {}", path_, error.what());
    }
  }

  void keep(const std::string& name, const torch::Tensor& own) {
    made_.state.set(name, own.detach());
    if (!is_count_of_batches(name)) made_.kept.push_back(name);
  }

  void note_unused() {
    std::set<std::string> own_names;
    for (const auto& [name, tensor] : own_) own_names.insert(name);
    for (const FileWeight& weight : file_) {
      if (taken_.contains(&weight) || is_second_name(weight, taken_)) continue;
      made_.unused.push_back(weight.in_file);
      if (!own_names.contains(weight.name) && !is_skipped(weight)) {
        unexpected_.push_back(weight.in_file);
      }
    }
  }

  void check_taken() const {
    if (made_.taken > 0 || own_.empty()) return;
    std::vector<std::string> ours, theirs;
    for (const auto& [name, tensor] : own_) ours.push_back(name);
    for (const FileWeight& weight : file_) theirs.push_back(weight.in_file);
    const auto hint = prefix_hint(own_, file_);
    throw CheckpointError(
        "{}: none of its {} weights fits the model, which would begin untrained; the file has {}; "
        "the model has {}; {}",
        path_, file_.size(), printable(list_some(theirs)), list_some(ours),
        hint.value_or("use rename if the same weights have other names"));
  }

  void check_strict() const {
    if (misfits_.empty() && missing_.empty() && unexpected_.empty()) return;
    std::vector<std::string> faults;
    if (!misfits_.empty()) faults.push_back(list_some(misfits_));
    if (!missing_.empty()) faults.push_back("not in the file: " + list_some(missing_));
    if (!unexpected_.empty()) {
      faults.push_back("not in the model: " + printable(list_some(unexpected_)));
    }
    const auto hint =
        missing_.empty() || unexpected_.empty() ? std::nullopt : prefix_hint(own_, file_);
    throw CheckpointError(
        "{}: does not fit the model: {}; {}", path_, join(faults, "; "),
        hint.value_or("to begin without some weights, add their names or patterns to skip, or set "
                      "strict = false"));
  }

  const WeightsOptions& options_;
  const std::string path_;
  const NamedTensors own_;
  const FileWeights file_;
  FirstWeights made_;
  std::set<const FileWeight*> taken_;
  std::vector<std::string> misfits_;     // their faults, as text
  std::vector<std::string> missing_;     // in the file
  std::vector<std::string> unexpected_;  // in the file
};

}  // namespace

std::string FirstWeights::summary() const {
  const std::int64_t all = taken + std::ssize(kept);
  std::string text = taken == all ? fmt::format("all {} weights", all)
                                  : fmt::format("{} of {} weights", taken, all);
  const std::vector<std::string> types(converted.begin(), converted.end());
  if (!types.empty()) text += ", converted from " + join(types, " and from ");
  return text;
}

std::string FirstWeights::rest() const {
  std::vector<std::string> sentences;
  if (!kept.empty())
    sentences.push_back(fmt::format("The model keeps its own {}.", list_some(kept)));
  if (!unused.empty()) {
    sentences.push_back(fmt::format("Not taken from the file: {}.", printable(list_some(unused))));
  }
  return join(sentences, " ");
}

FirstWeights first_weights(const Model& model, const Weights& weights) {
  return first_weights(model, weights, checkpoint::load_weights(weights.path()));
}

FirstWeights first_weights(const Model& model, const Weights& weights, const StateDict& file) {
  return WeightsFit(model, weights, file).make();
}

FirstWeights load_weights(const Model& model, const Weights& weights) {
  FirstWeights first = first_weights(model, weights);
  model.load_state(first.state);
  return first;
}

std::vector<PlannedWeights> planned_weights(const Model& model, const TrainOptions& options) {
  std::vector<PlannedWeights> planned;
  if (options.weights) {
    planned.push_back({.option = "weights",
                       .network = "",
                       .model = model,
                       .weights = options.weights.without(options.weights_skip)});
  }
  for (const auto& [name, weights] : options.network_weights) {
    planned.push_back({.option = "network_weights/" + name,
                       .network = name,
                       .model = model.network(name),
                       .weights = weights});
  }
  return planned;
}

}  // namespace lockstep

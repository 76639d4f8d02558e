// A file with the first weights of a model, and how its names and the model's belong together:
//
//   .weights = "net.pth"
//   .weights = {"simclr.pth", {.strict = false, .remove_prefix = "backbone."}}
//   .weights = {"resnet18.pth", {.rename = {{"fc.*", "head.*"}}, .skip = {"head.bias"}}}
#pragma once

#include <concepts>
#include <filesystem>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep {

// A weight of the file gets another name. Each * of `to` stands for the text that the * at the same
// place of `from` stands for: "blocks.*.norm.*" to "layers.*.ln.*".
struct WeightRename {
  std::string from;
  std::string to;
};

// Names are changed in the order of the fields. A prefix or pattern that fits no name is an error.
struct WeightsOptions {
  // Whether every weight of the file and of the model must be in both, with the same shape. If
  // false, the model keeps its own weights where the file has none that fits.
  bool strict = true;
  std::string remove_prefix = {};         // of names in the file; others keep their names
  std::vector<WeightRename> rename = {};  // the first one that fits a name counts
  std::string add_prefix = {};            // to all names of the file
  // Weights that are not taken, by their names in the model or in the file, or patterns as in a
  // shell: "fc.*". They begin as the model was made.
  std::vector<std::string> skip = {};
};

// The file is a checkpoint, a state_dict that Python saved, or has the format safetensors. Numbers
// of another type than the model's (half, bfloat16, double) are converted.
class Weights {
 public:
  Weights() = default;  // none

  template <typename Path>
  requires(std::constructible_from<std::filesystem::path, Path> &&
           !std::same_as<std::remove_cvref_t<Path>, Weights>)
      Weights(Path&& path, WeightsOptions options = {})
      : Weights(Checked{}, std::filesystem::path(std::forward<Path>(path)), std::move(options)) {}

  explicit operator bool() const { return !path_.empty(); }
  const std::filesystem::path& path() const { return path_; }
  const WeightsOptions& options() const { return options_; }

  // The same file without some more weights.
  Weights without(const std::vector<std::string>& names) const;

  // The options as text, without the path: ranks may have different paths to the same file.
  std::string describe() const;

 private:
  struct Checked {};
  // Throws ConfigError if the path is empty, or if a name in `rename` is empty or has more * than
  // its pattern.
  Weights(Checked, std::filesystem::path path, WeightsOptions options);

  std::filesystem::path path_;
  WeightsOptions options_;
};

}  // namespace lockstep

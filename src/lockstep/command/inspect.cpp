// lockstep inspect: shows the content of a checkpoint.
#include <iostream>

#include <CLI/CLI.hpp>
#include <unistd.h>

#include "lockstep/base/text.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/command/command.h"
#include "lockstep/command/subcommand.h"
#include "lockstep/data/describe.h"

namespace lockstep::command {
namespace {

struct InspectOptions {
  std::string path;
  bool config = false;
  bool environment = false;
  bool tensors = false;
};

std::int64_t bytes_of(const StateValue& value) {
  std::int64_t bytes = 0;
  if (const auto* const tensor = value.get_if<torch::Tensor>()) {
    bytes = static_cast<std::int64_t>(tensor->nbytes());
  } else if (const auto* const dict = value.get_if<StateDict>()) {
    for (const auto& [key, item] : *dict) bytes += bytes_of(item);
  } else if (const auto* const list = value.get_if<StateList>()) {
    for (const StateValue& item : *list) bytes += bytes_of(item);
  }
  return bytes;
}

std::int64_t tensors_of(const StateDict& dict) {
  std::int64_t count = 0;
  for (const auto& [key, value] : dict) {
    if (value.get_if<torch::Tensor>() != nullptr) ++count;
    if (const auto* const inner = value.get_if<StateDict>()) count += tensors_of(*inner);
  }
  return count;
}

std::string show(const StateValue& value) {
  struct Show {
    std::string operator()(std::monostate) const { return "none"; }
    std::string operator()(bool truth) const { return truth ? "true" : "false"; }
    std::string operator()(std::int64_t number) const { return std::to_string(number); }
    std::string operator()(double number) const { return fmt::format("{}", number); }
    std::string operator()(const std::string& text) const {
      const bool long_text = text.size() > 60 || text.find('\n') != std::string::npos;
      return long_text ? fmt::format("text of {} characters", text.size()) : printable(text);
    }
    std::string operator()(const torch::Tensor& tensor) const { return data::describe(tensor); }
    std::string operator()(const StateList& list) const {
      return fmt::format("list of {}", list.size());
    }
    std::string operator()(const StateDict& dict) const {
      return fmt::format("{} entries", dict.size());
    }
  };
  return std::visit(Show{}, value.variant());
}

// "loss: 0.613 | accuracy01: 0.824", without standard deviations.
std::string metrics_line(const StateDict& metrics) {
  std::vector<std::string> shown;
  for (const auto& [name, value] : metrics) {
    const auto* const number = value.get_if<double>();
    if (number == nullptr || name.ends_with("/std")) continue;
    shown.push_back(fmt::format("{}: {}", printable(name), format_metric(*number)));
  }
  return join(shown, " | ");
}

// Prints entries that have a special form. Returns false for all others, and prints nothing then.
bool print_known(const std::string& key, const StateDict& dict, const std::string& indent) {
  if (key == "epoch_metrics") {
    std::cout << indent << key << ":\n";
    for (const auto& [loader, metrics] : dict) {
      const auto* const of_loader = metrics.get_if<StateDict>();
      std::cout << fmt::format("{}  {}: {}\n", indent, printable(loader),
                               of_loader != nullptr ? metrics_line(*of_loader) : show(metrics));
    }
    return true;
  }
  if (key == "history") {
    std::cout << fmt::format("{}{}: metrics of {} epochs\n", indent, key, dict.size());
    return true;
  }
  return false;
}

// Prints numbers and text in full, and one line per entry that contains tensors.
void print(const StateDict& dict, const std::string& indent, bool tensors) {
  for (const auto& [raw_key, value] : dict) {
    const std::string key = printable(raw_key);
    const auto* const inner = value.get_if<StateDict>();
    if (inner == nullptr) {
      std::cout << fmt::format("{}{}: {}\n", indent, key, show(value));
    } else if (print_known(key, *inner, indent)) {
      continue;
    } else if (const auto count = tensors_of(*inner); count > 0 && !tensors) {
      std::cout << fmt::format("{}{}: {} tensors, {}\n", indent, key, count,
                               format_bytes(static_cast<double>(bytes_of(value))));
    } else {
      std::cout << fmt::format("{}{}:{}\n", indent, key, inner->size() == 0 ? " none" : "");
      print(*inner, indent + "  ", tensors);
    }
  }
}

// The number of weights of the model in the file. Nothing if the file has no model.
std::optional<std::int64_t> weights_of(const checkpoint::Content& content,
                                       const std::string& path) try {
  std::int64_t count = 0;
  for (const auto& [name, value] : checkpoint::weights_in(content, path)) {
    count += value.get_if<torch::Tensor>()->numel();
  }
  return count;
} catch (const CheckpointError&) {
  return std::nullopt;
}

int print_document(const StateDict& state, const std::string& name, const std::string& path) {
  const auto documents = state.get_or<StateDict>("documents", {});
  if (!documents.contains(name)) {
    throw ConfigError("{}: it has no {}: only checkpoints of `lockstep run` have one", path, name);
  }
  // A file or pipe gets the document unchanged, so that it can be used again. For a terminal,
  // control characters are made visible, so that the document cannot control the terminal.
  const auto text = documents.get<std::string>(name);
  std::cout << (::isatty(STDOUT_FILENO) != 0 ? printable_lines(text) : text);
  return kDone;
}

int inspect(const InspectOptions& options) {
  const checkpoint::Content content = checkpoint::read(options.path);
  const StateDict& state = content.state;
  if (options.config) return print_document(state, "config", options.path);
  if (options.environment) return print_document(state, "environment", options.path);
  std::cout << printable(options.path)
            << (content.is_ours ? ": complete" : ": of torch.save, without a checksum");
  if (const auto weights = weights_of(content, options.path)) {
    std::cout << fmt::format("; a model of {} weights", with_thousands(*weights));
  }
  std::cout << '\n';
  print(state, "  ", options.tensors);
  return kDone;
}

}  // namespace

void add_inspect(CLI::App& app, Action& chosen) {
  auto* const command = app.add_subcommand("inspect", "Show what is in a checkpoint");
  command->footer(R"(
Examples:
  lockstep inspect logs/checkpoints/best.pth
  lockstep inspect last.pth --tensors
  lockstep inspect last.pth --config > again.yml)");
  auto options = std::make_shared<InspectOptions>();
  command->add_option("file", options->path, "A checkpoint")->required();
  command->add_flag("--tensors", options->tensors, "Each tensor with its type and shape");
  command->add_flag("--config", options->config, "Print only the config of the run");
  command->add_flag("--environment", options->environment,
                    "Print only the environment of the run: versions, machine, variables");
  command->callback([options, &chosen] { chosen = [options] { return inspect(*options); }; });
}

}  // namespace lockstep::command

// lockstep export: writes a trained model as TorchScript, ONNX, safetensors or a plain .pth.
#include <algorithm>
#include <array>
#include <iostream>

#include <CLI/CLI.hpp>

#include "lockstep/base/text.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/checkpoint/weights_file.h"
#include "lockstep/command/command.h"
#include "lockstep/command/input_shape.h"
#include "lockstep/command/saved_run.h"
#include "lockstep/command/subcommand.h"
#include "lockstep/exporting/example.h"
#include "lockstep/exporting/onnx.h"
#include "lockstep/exporting/torchscript.h"
#include "lockstep/runner/self_supervised.h"
#include "lockstep/runner/supervised.h"
#include "lockstep/train/dry_run.h"

namespace lockstep::command {
namespace {

namespace fs = std::filesystem;

struct ExportCommandOptions {
  SavedRunOptions run;
  std::string output;
  std::optional<std::string> format;
  std::optional<std::string> model;
  std::vector<std::string> input_shapes;
  std::optional<std::int64_t> opset;       // default: that of OnnxOptions
  bool any_size = false;                   // --dynamic-batch, the default
  bool one_size = false;                   // --no-dynamic-batch
  std::optional<std::int64_t> batch_size;  // without dynamic_batch; default: 1
};

// The formats with the ending that means each.
constexpr std::array<std::pair<const char*, const char*>, 4> kFormats = {
    {{"torchscript", ".pt"}, {"onnx", ".onnx"}, {"safetensors", ".safetensors"}, {"pth", ".pth"}}};

std::string format_of(const ExportCommandOptions& options) {
  const std::string ending = fs::path(options.output).extension().string();
  for (const auto& [name, own] : kFormats) {
    if (options.format ? *options.format == name : ending == own) return name;
  }
  throw ConfigError(
      "--output {}: the ending .pt, .onnx, .safetensors or .pth says the format; give --format",
      options.output);
}

// Called before the run is read, which may take a while.
void check_output(const ExportCommandOptions& options, const std::string& format) {
  const fs::path folder = fs::path(options.output).parent_path();
  if (!folder.empty() && !fs::is_directory(folder)) {
    throw ConfigError("--output: {}: there is no such folder", folder.string());
  }
  const std::string ending = fs::path(options.output).extension().string();
  const bool is_plain = format == "safetensors" || format == "pth";
  if (is_plain && ending != "." + format) {
    throw ConfigError("--output {}: expected a name that ends with .{}", options.output, format);
  }
  // An option that would have no effect is a mistake.
  const bool has_inputs =
      !options.input_shapes.empty() || options.any_size || options.one_size || options.batch_size;
  if (is_plain && has_inputs) {
    throw ConfigError(
        "--input-shape, --dynamic-batch and --batch-size: a file of weights has no inputs; leave "
        "them out, or export as torchscript or onnx");
  }
  if (options.opset && format != "onnx") {
    throw ConfigError("--opset: only ONNX has operator sets, and the format is {}", format);
  }
  if (options.batch_size && !options.one_size) {
    throw ConfigError(
        "--batch-size: it is the only size that the file takes; give "
        "--no-dynamic-batch, too");
  }
  if (options.batch_size.value_or(1) < 1) {
    throw ConfigError("--batch-size: expected at least 1, got {}", *options.batch_size);
  }
}

// A checkpoint has more than the weights. Replaced by an export, it could not be resumed.
void check_keeps_checkpoint(const ExportCommandOptions& options) {
  const fs::path checkpoint = find_checkpoint(options.run);
  std::error_code is_new;
  if (!fs::equivalent(options.output, checkpoint, is_new)) return;
  throw ConfigError(
      "--output {}: this is the checkpoint that is exported, and it would be replaced; give "
      "--output with another name",
      options.output);
}

// The weights of one network, without its name, or all of them.
StateDict chosen_weights(const StateDict& all, const std::optional<std::string>& model) {
  if (!model) return all;
  StateDict chosen;
  for (const auto& [name, value] : all) {
    if (name.starts_with(*model + ".")) chosen.set(name.substr(model->size() + 1), value);
  }
  if (chosen.size() == 0) {
    throw ConfigError("--model {}: no weight of the checkpoint begins with '{}.'", *model, *model);
  }
  return chosen;
}

int export_weights(const ExportCommandOptions& options) {
  const fs::path checkpoint = find_checkpoint(options.run);
  const StateDict weights = chosen_weights(checkpoint::load_weights(checkpoint), options.model);
  checkpoint::save_weights(options.output, weights);
  std::cout << fmt::format("{}: {} weights of {}\n", options.output, weights.size(),
                           checkpoint.string());
  return kDone;
}

// The inputs of the model, and the names of its outputs.
struct ModelKeys {
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  bool is_known = false;      // the runner says so
  bool names_inputs = false;  // the user chose several inputs
};

ModelKeys keys_of(const Runner& runner) {
  if (const auto* const own = dynamic_cast<const SupervisedRunner*>(&runner)) {
    const SupervisedKeys& keys = own->keys();
    return {.inputs = keys.input_keys.empty() ? std::vector{keys.input_key} : keys.input_keys,
            .outputs = keys.output_keys.empty() ? std::vector{keys.output_key} : keys.output_keys,
            .is_known = true,
            .names_inputs = !keys.input_keys.empty()};
  }
  if (const auto* const own = dynamic_cast<const SelfSupervisedRunner*>(&runner)) {
    return {.inputs = {own->keys().input_key}, .outputs = {}, .is_known = true};
  }
  return {};
}

// Samples of the data, or tensors of the shapes that the user says.
Batch example_inputs(const ExportCommandOptions& options, const recipe::Evaluation& what,
                     const Model& model, const ModelKeys& keys) {
  constexpr std::int64_t kSamples = 4;
  Batch inputs;
  for (std::size_t i = 0; i < options.input_shapes.size(); ++i) {
    InputShape shape = read_input_shape(options.input_shapes[i]);
    if (shape.name.empty()) {
      const bool has_key = i < keys.inputs.size() && !options.model;
      shape.name = has_key ? keys.inputs[i] : i == 0 ? "input" : fmt::format("input_{}", i);
    }
    inputs.set(shape.name, example_of(shape, kSamples));
  }
  if (!options.input_shapes.empty()) return inputs;
  if (!keys.is_known || options.model) {
    throw ConfigError(
        "export: it is not known which values of a batch go into the network, because {}; give the "
        "shape of each input: --input-shape 1,28,28",
        options.model ? "--model chooses one of several" : "the runner is your own");
  }
  const Batch samples = first_samples(what.loader, kSamples);
  // A model whose forward takes a batch gets all of it, unless keys were given.
  if (model.takes_batch() && !keys.names_inputs) return samples;
  for (const std::string& key : keys.inputs) inputs.set(key, tensor_of(samples, key));
  return inputs;
}

const Model& chosen_model(const ExportCommandOptions& options, const recipe::Evaluation& what) {
  if (options.model) return what.model.network(*options.model);
  if (what.models.size() > 1) {
    throw ConfigError("export: the run has several networks; choose one of them with --model: {}",
                      join(what.models.names(), ", "));
  }
  return what.model;
}

std::int64_t opset_of(const ExportCommandOptions& options) {
  return options.opset.value_or(exporting::OnnxOptions{}.opset);
}

// The runner's names of the outputs, if the model has none of its own.
std::vector<std::string> output_names(const Model& model, const Batch& inputs,
                                      const ModelKeys& keys) {
  const exporting::EvaluationMode mode(model);
  const auto names = exporting::call(model, inputs).names;
  const bool is_unnamed = names.front() == "output" || names.front() == "output_0";
  return is_unnamed && names.size() == keys.outputs.size() ? keys.outputs
                                                           : std::vector<std::string>();
}

void print(const ExportCommandOptions& options, const std::string& format,
           const exporting::Exported& exported) {
  std::vector<std::string> sizes;
  for (const std::int64_t size : exported.checked_sizes) sizes.push_back(std::to_string(size));
  std::cout << fmt::format(
      "{}: {}{}, {} bytes; its outputs are the model's, checked with batches of {}: largest "
      "difference {:.2g}\n",
      options.output, format, format == "onnx" ? fmt::format(" opset {}", opset_of(options)) : "",
      with_thousands(static_cast<std::int64_t>(exported.bytes)), join(sizes, " and "),
      exported.largest_error);
  for (const auto& port : exported.inputs) std::cout << "  input   " << describe(port) << '\n';
  for (const auto& port : exported.outputs) std::cout << "  output  " << describe(port) << '\n';
}

// Without --output, the file is model.<ending> in the folder of the run, or beside the checkpoint.
std::string output_of(const ExportCommandOptions& options) {
  if (!options.output.empty()) return options.output;
  if (!options.format) {
    throw ConfigError("expected --output FILE, or --format for model.<ending> in {}",
                      options.run.run);
  }
  const fs::path run(options.run.run);
  const auto chosen = std::ranges::find(
      kFormats, *options.format, [](const auto& format) { return std::string(format.first); });
  return ((fs::is_directory(run) ? run : run.parent_path()) / "model").string() + chosen->second;
}

int export_model(ExportCommandOptions options) {
  options.output = output_of(options);
  const std::string format = format_of(options);
  check_output(options, format);
  check_keeps_checkpoint(options);
  if (format == "safetensors" || format == "pth") return export_weights(options);
  const SavedRun run = open_saved_run(options.run);
  if (!run.is_primary) return kDone;
  const recipe::Evaluation& what = run.evaluation;
  const Model& model = chosen_model(options, what);
  const ModelKeys keys = keys_of(*what.runner);
  const bool is_dynamic = !options.one_size;
  model.to(torch::kCPU);
  Batch inputs = example_inputs(options, what, model, keys);
  if (!is_dynamic) inputs = exporting::with_batch_size(inputs, options.batch_size.value_or(1));
  if (format == "torchscript") {
    print(options, format,
          exporting::to_torchscript(model, inputs, options.output, {.dynamic_batch = is_dynamic}));
  } else {
    print(options, format,
          exporting::to_onnx(model, inputs, options.output,
                             {.opset = opset_of(options),
                              .dynamic_batch = is_dynamic,
                              .output_names = output_names(model, inputs, keys)}));
  }
  return kDone;
}

}  // namespace

void add_export(CLI::App& app, Action& chosen) {
  auto* const command = app.add_subcommand("export", "Write a trained model for other programs");
  command->footer(R"(
  x.pt           TorchScript: what the model computes in evaluation, for torch.jit.load
  x.onnx         ONNX, for onnxruntime and others
  x.safetensors  its weights by name
  x.pth          its weights by name, for load_state_dict(torch.load(…))

TorchScript and ONNX are kept only if what was written computes the same as the model, within 1e-5
of the largest output. The inputs are samples of the loader; --input-shape replaces them.

Examples:
  lockstep export logs --format onnx          # logs/model.onnx
  lockstep export logs --output model.onnx
  lockstep export logs --output model.onnx --opset 15 --no-dynamic-batch --batch-size 8
  lockstep export logs --output model.bin --format torchscript --checkpoint last
  lockstep export logs --output weights.safetensors
  lockstep export logs/gan --output generator.onnx --model generator --input-shape 64
  lockstep export logs --output tagger.onnx --input-shape tokens=16:long --input-shape lengths=:long)");
  auto options = std::make_shared<ExportCommandOptions>();
  add_run_options(*command, options->run);
  command->add_option("-o,--output", options->output,
                      "File to write; default: with --format, model.<ending> in the run's folder");
  std::vector<std::string> formats;
  for (const auto& [name, ending] : kFormats) formats.emplace_back(name);
  command
      ->add_option("--format", options->format,
                   "torchscript, onnx, safetensors or pth; default: the ending of the file")
      ->check(CLI::IsMember(formats));
  command->add_option("--model", options->model, "A network of a run with several ones");
  command
      ->add_option("--input-shape", options->input_shapes,
                   "Sizes of one sample: [name=]3,32,32[:type]; types: float, double, long, int, "
                   "bool; once per input")
      ->allow_extra_args(false);
  command->add_option("--opset", options->opset, "ONNX's operator set, 13 to 21; default: 17");
  auto* const any_size = command->add_flag("--dynamic-batch", options->any_size,
                                           "The file takes batches of any size; the default");
  command->add_flag("--no-dynamic-batch", options->one_size, "The file takes batches of one size")
      ->excludes(any_size);
  command->add_option("--batch-size", options->batch_size,
                      "That size, with --no-dynamic-batch; default: 1");
  command->callback([options, &chosen] { chosen = [options] { return export_model(*options); }; });
}

}  // namespace lockstep::command

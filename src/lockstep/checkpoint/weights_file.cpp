#include "lockstep/checkpoint/weights_file.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/pickle.h"
#include "lockstep/checkpoint/pickler.h"
#include "lockstep/source/safetensors.h"
#include "lockstep/state/named_tensors.h"

namespace lockstep::checkpoint {
namespace {

NamedTensors tensors_of(const StateDict& weights) {
  NamedTensors tensors;
  for (const auto& [name, value] : weights) {
    const auto* const tensor = value.get_if<torch::Tensor>();
    if (tensor == nullptr || !tensor->defined()) {
      throw CheckpointError("the weight '{}': expected a tensor, got {}", printable(name),
                            tensor == nullptr ? value.kind() : "an undefined one");
    }
    tensors.emplace_back(name, *tensor);
  }
  return tensors;
}

// One tensor of a safetensors file.
struct SafetensorsEntry {
  data::SafetensorsType type;
  std::string name;
  torch::Tensor tensor;
};

SafetensorsEntry safetensors_entry(const std::string& name, const torch::Tensor& tensor) {
  const auto type = data::safetensors_type(tensor.scalar_type());
  if (!type || tensor.layout() != torch::kStrided) {
    throw CheckpointError(
        "the weight '{}' is a {} tensor of {}, which safetensors does not have; save it as .pth, "
        "or convert it",
        printable(name), tensor.layout() == torch::kStrided ? "dense" : "sparse",
        c10::toString(tensor.scalar_type()));
  }
  if (!is_utf8(name) || name == "__metadata__") {
    throw CheckpointError("the weight '{}': safetensors does not allow this name", printable(name));
  }
  return {.type = *type, .name = name, .tensor = tensor};
}

// The bytes between a tensor's first and last number, on its device.
struct UsedMemory {
  c10::Device device;
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::string name;
};

UsedMemory memory_of(const std::string& name, const torch::Tensor& tensor) {
  std::int64_t last = 0;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  const auto begin = reinterpret_cast<std::uintptr_t>(tensor.data_ptr());
  const auto bytes = static_cast<std::uintptr_t>(last + 1) * tensor.element_size();
  return {.device = tensor.device(), .begin = begin, .end = begin + bytes, .name = name};
}

// A reader would get two tensors where there was one.
void refuse_shared_memory(const NamedTensors& tensors) {
  std::vector<UsedMemory> used;
  for (const auto& [name, tensor] : tensors) {
    if (tensor.numel() > 0) used.push_back(memory_of(name, tensor));
  }
  const auto place = [](const UsedMemory& m) {
    return std::tuple(static_cast<int>(m.device.type()), m.device.index(), m.begin);
  };
  std::ranges::stable_sort(used, {}, place);
  for (std::size_t i = 1; i < used.size(); ++i) {
    const UsedMemory &before = used[i - 1], &after = used[i];
    if (before.device != after.device || after.begin >= before.end) continue;
    throw CheckpointError(
        "the weights '{}' and '{}' share memory, and safetensors would hold them twice; leave one "
        "of the names out, save a copy of the tensor, or save as .pth",
        printable(before.name), printable(after.name));
  }
}

// The largest numbers first, as the Python library writes them.
std::vector<SafetensorsEntry> sorted_entries(const NamedTensors& tensors) {
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, tensor] : tensors) entries.push_back(safetensors_entry(name, tensor));
  std::ranges::sort(entries, [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::tie(b.type.place, a.name) < std::tie(a.type.place, b.name);
  });
  return entries;
}

std::string header_of(const std::vector<SafetensorsEntry>& entries) {
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"format", "pt"}};
  std::size_t offset = 0;
  for (const auto& [type, name, tensor] : entries) {
    nlohmann::ordered_json entry;
    entry["dtype"] = type.name;
    entry["shape"] = tensor.sizes().vec();
    entry["data_offsets"] = {offset, offset + tensor.nbytes()};
    offset += tensor.nbytes();
    header[name] = std::move(entry);
  }
  std::string text = header.dump();
  constexpr std::size_t kAlignment = 8;
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  return text;
}

void write_safetensors(const NamedTensors& tensors, const WriteBytes& write) {
  refuse_shared_memory(tensors);
  const std::vector<SafetensorsEntry> entries = sorted_entries(tensors);
  const std::string header = header_of(entries);
  const std::uint64_t length = header.size();
  write({reinterpret_cast<const char*>(&length), sizeof length});
  write(header);
  for (const SafetensorsEntry& entry : entries) {
    const torch::Tensor values = stored(entry.tensor);
    write({static_cast<const char*>(values.data_ptr()), values.nbytes()});
  }
}

// Calls `write` and puts the path before the message of a CheckpointError.
template <typename F>
void writing(const std::filesystem::path& path, F&& write) {
  try {
    write();
  } catch (const CheckpointError& error) {
    throw CheckpointError("{}: {}", path.string(), error.what());
  }
}

}  // namespace

void save_safetensors(const std::filesystem::path& path, const StateDict& weights) {
  writing(path, [&] {
    const NamedTensors tensors = tensors_of(weights);
    write_file_atomically(path,
                          [&](const WriteBytes& write) { write_safetensors(tensors, write); });
  });
}

void save_weights(const std::filesystem::path& path, const StateDict& weights) {
  const std::string extension = path.extension().string();
  if (extension == ".safetensors") return save_safetensors(path, weights);
  if (extension != ".pth" && extension != ".pt") {
    throw ConfigError("{}: expected a file name that ends with .pth, .pt or .safetensors, got '{}'",
                      path.string(), extension);
  }
  writing(path, [&] {
    tensors_of(weights);  // refuses other values
    write_file_atomically(path, [&](const WriteBytes& write) { write_pickle(weights, write); });
  });
}

}  // namespace lockstep::checkpoint

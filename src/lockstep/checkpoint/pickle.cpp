#include "lockstep/checkpoint/pickle.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <string_view>

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/jit_type.h>
#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/unpickler.h"

namespace lockstep::checkpoint {
namespace {

c10::IValue to_ivalue(const StateValue& value);

c10::IValue to_ivalue(const StateDict& dict) {
  c10::impl::GenericDict out(c10::StringType::get(), c10::AnyType::get());
  for (const auto& [key, value] : dict) out.insert(key, to_ivalue(value));
  return out;
}

c10::IValue to_ivalue(const StateList& list) {
  c10::impl::GenericList out(c10::AnyType::get());
  for (const auto& item : list) out.push_back(to_ivalue(item));
  return out;
}

c10::IValue to_ivalue(const torch::Tensor& tensor) {
  if (!tensor.defined()) return {};
  // A view into a flat buffer would drag the whole buffer into the file.
  torch::Tensor own = tensor.detach().to(torch::kCPU).contiguous();
  const bool whole = own.storage().nbytes() == own.nbytes();
  return whole ? own : own.clone();
}

c10::IValue to_ivalue(const StateValue& value) {
  return std::visit(
      [](const auto& held) -> c10::IValue {
        using T = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<T, std::monostate>) {
          return {};
        } else if constexpr (std::is_same_v<T, StateDict> || std::is_same_v<T, StateList> ||
                             std::is_same_v<T, torch::Tensor>) {
          return to_ivalue(held);
        } else {
          return c10::IValue(held);
        }
      },
      value.variant());
}

// The archive in memory. A reader that is asked for more than there is gets what there is.
class Bytes : public caffe2::serialize::ReadAdapterInterface {
 public:
  explicit Bytes(std::span<const char> bytes) : bytes_(bytes) {}
  std::size_t size() const override { return bytes_.size(); }
  std::size_t read(std::uint64_t position, void* buffer, std::size_t count,
                   const char*) const override {
    if (position >= bytes_.size()) return 0;
    const auto rest = bytes_.subspan(static_cast<std::size_t>(position));
    const std::size_t copied = std::min(count, rest.size());
    std::memcpy(buffer, rest.data(), copied);
    return copied;
  }

 private:
  std::span<const char> bytes_;
};

// The storages of an archive; tensors that share one share it here, too.
class Storages {
 public:
  explicit Storages(caffe2::serialize::PyTorchStreamReader& reader) : reader_(reader) {}

  torch::Tensor read(const std::string& key, torch::ScalarType type, std::int64_t size) {
    auto& storage = storages_[key];
    if (!storage.defined()) storage = read_new(key, type, size);
    if (storage.scalar_type() != type || storage.numel() != size) {
      throw CheckpointError("damaged: storage {} is of two kinds", key);
    }
    return storage;
  }

 private:
  torch::Tensor read_new(const std::string& key, torch::ScalarType type, std::int64_t size) {
    auto [bytes, count] = reader_.getRecord("data/" + key);
    const std::size_t width = c10::elementSize(type);
    if (size < 0 || static_cast<std::size_t>(size) != count / width) {
      throw CheckpointError("damaged: storage {} has {} bytes, expected {} numbers of {} bytes",
                            key, count, size, width);
    }
    const auto owner = std::make_shared<at::DataPtr>(std::move(bytes));
    return torch::from_blob(
        owner->get(), {size}, [owner](void*) {}, type);
  }

  caffe2::serialize::PyTorchStreamReader& reader_;
  std::map<std::string, torch::Tensor> storages_;
};

StateDict read_archive(std::span<const char> bytes) {
  caffe2::serialize::PyTorchStreamReader reader(std::make_shared<Bytes>(bytes));
  if (!reader.hasRecord("data.pkl")) throw CheckpointError("has no data.pkl");
  if (reader.hasRecord("constants.pkl")) {
    throw CheckpointError("is a TorchScript program, expected a state_dict");
  }
  if (reader.hasRecord("byteorder")) {
    const auto [order, size] = reader.getRecord("byteorder");
    if (std::string_view(static_cast<const char*>(order.get()), size) != "little") {
      throw CheckpointError("was written on a big-endian machine, expected a little-endian one");
    }
  }
  const auto [pickle, size] = reader.getRecord("data.pkl");
  Storages storages(reader);
  const StateValue value =
      unpickle({static_cast<const char*>(pickle.get()), size},
               [&](const std::string& key, torch::ScalarType type, std::int64_t count) {
                 return storages.read(key, type, count);
               });
  if (const auto* const dict = value.get_if<StateDict>()) return *dict;
  throw CheckpointError("expected a dictionary, found {}", value.kind());
}

}  // namespace

std::vector<char> to_pickle(const StateDict& state) {
  return torch::jit::pickle_save(to_ivalue(state));
}

StateDict from_pickle(std::span<const char> bytes, const std::string& what) {
  if (!std::string_view(bytes.data(), bytes.size()).starts_with("PK")) {
    throw CheckpointError(
        "{}: not a readable checkpoint: expected a zip archive, as torch.save writes since 1.6",
        what);
  }
  try {
    return read_archive(bytes);
  } catch (const CheckpointError& error) {
    throw CheckpointError("{}: {}", what, error.what());
  } catch (const c10::Error& error) {
    throw CheckpointError("{}: not a readable checkpoint: {}", what,
                          error.what_without_backtrace());
  } catch (const std::exception& error) {
    throw CheckpointError("{}: not a readable checkpoint: {}", what, error.what());
  }
}

}  // namespace lockstep::checkpoint

#include "lockstep/checkpoint/pickle.h"

#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <span>
#include <string_view>

#include <caffe2/serialize/inline_container.h>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/archive.h"
#include "lockstep/checkpoint/pickler.h"
#include "lockstep/checkpoint/unpickler.h"
#include "lockstep/source/stored_array.h"

namespace lockstep::checkpoint {
namespace {

// The storages of an archive. Tensors that share a storage in the file share it here, too.
class Storages {
 public:
  Storages(const Archive& archive, std::shared_ptr<std::string> bytes)
      : archive_(archive), bytes_(std::move(bytes)) {}

  torch::Tensor read(const std::string& key, torch::ScalarType type, std::int64_t size) {
    auto& storage = storages_[key];
    if (!storage.defined()) storage = read_new(key, type, size);
    if (storage.scalar_type() != type || storage.numel() != size) {
      throw CheckpointError("damaged: storage {} is used with two types or sizes", printable(key));
    }
    return storage;
  }

 private:
  torch::Tensor read_new(const std::string& key, torch::ScalarType type, std::int64_t size) {
    const auto entry = archive_.find("data/" + key);
    if (!entry) throw CheckpointError("damaged: has no entry data/{}", printable(key));
    const std::size_t width = c10::elementSize(type);
    if (size < 0 || static_cast<std::size_t>(size) != entry->size() / width) {
      throw CheckpointError("damaged: storage {} has {} bytes, expected {} numbers of {} bytes",
                            printable(key), entry->size(), size, width);
    }
    if (type == torch::kBool && data::find_non_bool(*entry)) {
      throw CheckpointError("damaged: storage {} has bools that are neither 0 nor 1",
                            printable(key));
    }
    // torch.save aligns every entry; other writers of zip archives may not.
    if (reinterpret_cast<std::uintptr_t>(entry->data()) % width != 0) {
      torch::Tensor copy = torch::empty({size}, type);
      std::memcpy(copy.data_ptr(), entry->data(), copy.nbytes());
      return copy;
    }
    return torch::from_blob(
        const_cast<char*>(entry->data()), {size}, [owner = bytes_](void*) {}, type);
  }

  const Archive& archive_;
  std::shared_ptr<std::string> bytes_;
  std::map<std::string, torch::Tensor> storages_;
};

StateDict read_archive(const std::shared_ptr<std::string>& bytes) {
  const Archive archive(*bytes);
  const auto pickle = archive.find("data.pkl");
  if (!pickle) throw CheckpointError("has no data.pkl");
  if (archive.find("constants.pkl")) {
    throw CheckpointError("is a TorchScript program, expected a state_dict");
  }
  if (const auto order = archive.find("byteorder")) {
    if (std::string_view(order->data(), order->size()) != "little") {
      throw CheckpointError("was written on a big-endian machine, expected a little-endian one");
    }
  }
  Storages storages(archive, bytes);
  const auto read = [&](const std::string& key, torch::ScalarType type, std::int64_t count) {
    return storages.read(key, type, count);
  };
  StateValue value = unpickle(*pickle, {.read_storage = read, .bytes = bytes->size()});
  const std::string kind = value.kind();
  auto held = std::move(value).variant();
  if (auto* const dict = std::get_if<StateDict>(&held)) return std::move(*dict);
  throw CheckpointError("expected a dictionary, found {}", kind);
}

// LibTorch's writer calls C code, and its destructor writes: no exception may pass through either.
// The first exception is kept, and everything that is written after it is dropped.
class Guarded {
 public:
  explicit Guarded(const WriteBytes& write) : write_(write) {}

  std::size_t operator()(const void* bytes, std::size_t size) {
    try {
      if (!failure_) write_({static_cast<const char*>(bytes), size});
    } catch (...) {
      failure_ = std::current_exception();
    }
    return size;
  }

  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  const WriteBytes& write_;
  std::exception_ptr failure_;
};

}  // namespace

void write_pickle(const StateDict& state, const WriteBytes& write) {
  const Pickled pickled = pickle(state);
  Guarded guarded(write);
  caffe2::serialize::PyTorchStreamWriter archive(
      [&](const void* bytes, std::size_t size) { return guarded(bytes, size); });
  archive.writeRecord("data.pkl", pickled.program.data(), pickled.program.size());
  for (std::size_t i = 0; i < pickled.storages.size(); ++i) {
    const torch::Tensor values = stored(pickled.storages[i]);
    archive.writeRecord("data/" + std::to_string(i), values.data_ptr(), values.nbytes());
    guarded.rethrow();
  }
  archive.writeEndOfFile();
  guarded.rethrow();
}

std::string to_pickle(const StateDict& state) {
  std::string bytes;
  write_pickle(state, [&](std::string_view piece) { bytes += piece; });
  return bytes;
}

StateDict from_pickle(std::string bytes) {
  if (!bytes.starts_with("PK")) {
    throw CheckpointError(
        "not a readable checkpoint: expected a zip archive, as torch.save writes since 1.6");
  }
  return read_archive(std::make_shared<std::string>(std::move(bytes)));
}

}  // namespace lockstep::checkpoint

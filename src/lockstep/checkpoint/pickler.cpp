#include "lockstep/checkpoint/pickler.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <limits>
#include <map>
#include <string_view>
#include <tuple>
#include <variant>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/storage_types.h"

namespace lockstep::checkpoint {
namespace {

// Instructions of protocol 2, which torch.save writes.
constexpr char kAppends = 'e', kBinFloat = 'G', kBinGet = 'h', kBinInt = 'J', kBinPersId = 'Q',
               kBinPut = 'q', kBinUnicode = 'X', kEmptyDict = '}', kEmptyList = ']',
               kEmptyTuple = ')', kFalse = '\x89', kGlobal = 'c', kLong1 = '\x8a', kMark = '(',
               kNone = 'N', kProtocol = '\x80', kReduce = 'R', kSetItems = 'u', kStop = '.',
               kTrue = '\x88', kTuple = 't', kTuple2 = '\x86';

// Each byte as the character with that number, in UTF-8.
std::string latin1_as_utf8(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      out += c;
    } else {
      out += static_cast<char>(0xc0 | byte >> 6);
      out += static_cast<char>(0x80 | (byte & 0x3f));
    }
  }
  return out;
}

std::vector<std::int64_t> row_major_strides(torch::IntArrayRef sizes) {
  std::vector<std::int64_t> strides(sizes.size(), 1);
  for (std::size_t i = sizes.size(); i-- > 1;) {
    strides[i - 1] = strides[i] * std::max<std::int64_t>(sizes[i], 1);
  }
  return strides;
}

class Pickler {
 public:
  Pickled run(const StateDict& state) {
    out_ = {kProtocol, '\2'};
    write(state);
    op(kStop);
    return {std::move(out_), std::move(storages_)};
  }

 private:
  void op(char code) { out_ += code; }

  template <typename T>
  void little_endian(T value) {
    static_assert(std::endian::native == std::endian::little);
    out_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }

  void write(std::monostate) { op(kNone); }
  void write(bool value) { op(value ? kTrue : kFalse); }

  void write(std::int64_t value) {
    if (value >= std::numeric_limits<std::int32_t>::min() &&
        value <= std::numeric_limits<std::int32_t>::max()) {
      op(kBinInt);
      little_endian(static_cast<std::int32_t>(value));
    } else {
      op(kLong1);
      op(sizeof value);
      little_endian(value);
    }
  }

  void write(double value) {
    op(kBinFloat);
    little_endian(__builtin_bswap64(std::bit_cast<std::uint64_t>(value)));
  }

  void unicode(std::string_view text) {
    if (text.size() > std::numeric_limits<std::uint32_t>::max()) {
      throw CheckpointError("a text of {} bytes: expected less than 4 GiB", text.size());
    }
    op(kBinUnicode);
    little_endian(static_cast<std::uint32_t>(text.size()));
    out_ += text;
  }

  // A string that is not UTF-8 is bytes in Python, not text; protocol 2 writes bytes as encoded
  // text.
  void write(const std::string& text) {
    if (is_utf8(text)) return unicode(text);
    global("_codecs", "encode");
    unicode(latin1_as_utf8(text));
    unicode("latin1");
    op(kTuple2);
    op(kReduce);
  }

  void write(const StateList& list) {
    op(kEmptyList);
    if (list.empty()) return;
    op(kMark);
    for (const StateValue& item : list) write(item);
    op(kAppends);
  }

  void write(const StateDict& dict) {
    const bool is_optimizer = dict.contains("param_groups");
    op(kEmptyDict);
    if (dict.size() == 0) return;
    op(kMark);
    for (const auto& [key, value] : dict) {
      write(key);
      const auto* const inner = value.get_if<StateDict>();
      if (is_optimizer && inner != nullptr && key == "state") {
        write_numbered(*inner);
      } else {
        write(value);
      }
    }
    op(kSetItems);
  }

  // PyTorch's optimizers have the state of their parameters by number. A StateDict has no keys but
  // text.
  void write_numbered(const StateDict& dict) {
    op(kEmptyDict);
    if (dict.size() == 0) return;
    op(kMark);
    for (const auto& [key, value] : dict) {
      std::int64_t number = 0;
      std::from_chars(key.data(), key.data() + key.size(), number);
      if (std::to_string(number) == key) {
        write(number);
      } else {
        write(key);
      }
      write(value);
    }
    op(kSetItems);
  }

  void write(const StateValue& value) {
    std::visit([this](const auto& held) { write(held); }, value.variant());
  }

  // torch._utils._rebuild_tensor_v2(storage, offset, sizes, strides, requires_grad, hooks)
  void write(const torch::Tensor& tensor) {
    if (!tensor.defined()) return op(kNone);
    global("torch._utils", "_rebuild_tensor_v2");
    op(kMark);
    storage(tensor);
    write(std::int64_t{0});
    tuple(tensor.sizes().vec());
    tuple(row_major_strides(tensor.sizes()));
    write(false);
    global("collections", "OrderedDict");
    op(kEmptyTuple);
    op(kReduce);
    op(kTuple);
    op(kReduce);
  }

  // ("storage", type, key, device, number of elements)
  void storage(const torch::Tensor& tensor) {
    const auto type = storage_type_name(tensor.scalar_type());
    if (!type || tensor.layout() != torch::kStrided) {
      throw CheckpointError("a {} tensor of {}: cannot be saved in a checkpoint",
                            tensor.layout() == torch::kStrided ? "dense" : "sparse",
                            c10::toString(tensor.scalar_type()));
    }
    op(kMark);
    unicode("storage");
    global("torch", *type);
    unicode(std::to_string(index_of(tensor)));
    unicode("cpu");
    write(tensor.numel());
    op(kTuple);
    op(kBinPersId);
  }

  void tuple(const std::vector<std::int64_t>& values) {
    op(kMark);
    for (const std::int64_t value : values) write(value);
    op(kTuple);
  }

  // Tensors with equal views have the same numbers in memory, in the same order.
  using StorageView = std::tuple<const void*, torch::ScalarType, std::vector<std::int64_t>,
                                 std::vector<std::int64_t>, bool, bool>;
  static StorageView place_of(const torch::Tensor& tensor) {
    const bool is_flat = tensor.is_contiguous();
    return {tensor.data_ptr(),
            tensor.scalar_type(),
            is_flat ? std::vector<std::int64_t>{tensor.numel()} : tensor.sizes().vec(),
            is_flat ? std::vector<std::int64_t>{1} : tensor.strides().vec(),
            tensor.is_conj(),
            tensor.is_neg()};
  }

  std::size_t index_of(const torch::Tensor& tensor) {
    const auto [entry, is_new] = places_.try_emplace(place_of(tensor), storages_.size());
    if (is_new) storages_.push_back(tensor);
    return entry->second;
  }

  // A name is written once; afterwards it is recalled by its number.
  void global(const std::string& module, std::string_view name) {
    const auto [entry, is_new] =
        names_.try_emplace(fmt::format("{}\n{}\n", module, name), names_.size());
    if (is_new) {
      op(kGlobal);
      out_ += entry->first;
    }
    op(is_new ? kBinPut : kBinGet);  // there are fewer than 256 names
    op(static_cast<char>(entry->second));
  }

  std::string out_;
  std::vector<torch::Tensor> storages_;
  std::map<StorageView, std::size_t> places_;
  std::map<std::string, std::size_t> names_;
};

}  // namespace

Pickled pickle(const StateDict& state) {
  return Pickler().run(state);
}

torch::Tensor stored(const torch::Tensor& tensor) {
  return tensor.detach().to(torch::kCPU).resolve_conj().resolve_neg().contiguous();
}

}  // namespace lockstep::checkpoint

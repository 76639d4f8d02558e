#include "lockstep/state/hash.h"

#include <memory>
#include <string_view>

#include <xxhash.h>

#include "lockstep/base/text.h"

namespace lockstep {
namespace {

class Hasher {
 public:
  Hasher() : state_(XXH3_createState(), &XXH3_freeState) { XXH3_64bits_reset(state_.get()); }

  void bytes(const void* data, std::size_t size) { XXH3_64bits_update(state_.get(), data, size); }

  template <typename T>
  requires std::is_arithmetic_v<T>
  void number(T value) { bytes(&value, sizeof value); }

  // Adds the length, too, so that ("ab", "c") and ("a", "bc") differ.
  void text(std::string_view value) {
    number(static_cast<std::uint64_t>(value.size()));
    bytes(value.data(), value.size());
  }

  void tensor(const torch::Tensor& value) {
    number(value.defined());
    if (!value.defined()) return;
    text(c10::toString(value.scalar_type()));
    number(value.dim());
    for (const std::int64_t size : value.sizes()) number(size);
    const torch::Tensor flat = value.detach().to(torch::kCPU).contiguous();
    bytes(flat.data_ptr(), flat.nbytes());
  }

  void value(const StateValue& value) {
    number(value.variant().index());
    std::visit([this](const auto& held) { visit(held); }, value.variant());
  }

  void dict(const StateDict& dict) {
    number(dict.size());
    for (const auto& [key, value] : dict) {
      text(key);
      this->value(value);
    }
  }

  std::string digest() const { return to_hex(XXH3_64bits_digest(state_.get())); }

 private:
  void visit(std::monostate) {}
  void visit(bool held) { number(held); }
  void visit(std::int64_t held) { number(held); }
  void visit(double held) { number(held); }
  void visit(const std::string& held) { text(held); }
  void visit(const torch::Tensor& held) { tensor(held); }
  void visit(const StateDict& held) { dict(held); }
  void visit(const StateList& held) {
    number(held.size());
    for (const auto& item : held) value(item);
  }

  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state_;
};

}  // namespace

std::string weights_hash(const NamedTensors& tensors) {
  Hasher hasher;
  for (const auto& [name, tensor] : tensors) {
    hasher.text(name);
    hasher.tensor(tensor);
  }
  return hasher.digest();
}

std::string content_hash(const StateDict& state) {
  Hasher hasher;
  hasher.dict(state);
  return hasher.digest();
}

}  // namespace lockstep

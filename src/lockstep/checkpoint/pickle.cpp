#include "lockstep/checkpoint/pickle.h"

#include <exception>

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/jit_type.h>
#include <torch/csrc/jit/serialization/pickle.h>

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

StateValue from_ivalue(const c10::IValue& value);

StateDict from_dict(const c10::impl::GenericDict& dict) {
  StateDict out;
  for (const auto& entry : dict) {
    if (!entry.key().isString()) {
      throw CheckpointError("expected text as keys of a dictionary, found {}",
                            entry.key().tagKind());
    }
    out.set(entry.key().toStringRef(), from_ivalue(entry.value()));
  }
  return out;
}

StateList from_list(c10::ArrayRef<c10::IValue> items) {
  StateList out;
  for (const auto& item : items) out.push_back(from_ivalue(item));
  return out;
}

StateValue from_ivalue(const c10::IValue& value) {
  if (value.isNone()) return {};
  if (value.isBool()) return value.toBool();
  if (value.isInt()) return value.toInt();
  if (value.isDouble()) return value.toDouble();
  if (value.isString()) return value.toStringRef();
  if (value.isTensor()) return value.toTensor();
  if (value.isGenericDict()) return from_dict(value.toGenericDict());
  if (value.isTuple()) return from_list(value.toTupleRef().elements());
  if (value.isList()) return from_list(value.toList().vec());
  throw CheckpointError(
      "holds a value of kind {}, expected numbers, text, tensors, lists and "
      "dictionaries",
      value.tagKind());
}

}  // namespace

std::vector<char> to_pickle(const StateDict& state) {
  return torch::jit::pickle_save(to_ivalue(state));
}

StateDict from_pickle(const std::vector<char>& bytes, const std::string& what) {
  try {
    const c10::IValue value = torch::jit::pickle_load(bytes);
    if (!value.isGenericDict()) {
      throw CheckpointError("expected a dictionary, found a {}", value.tagKind());
    }
    return from_dict(value.toGenericDict());
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

#include "lockstep/data/global_draws.h"

#include <algorithm>
#include <memory>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

namespace lockstep::data {
namespace {

// LibTorch calls a plain function for each operation, so the result cannot be a member.
thread_local bool drew_globally = false;

bool is_global_generator(const c10::IValue& value) {
  return value.isNone() ||
         (value.isGenerator() && value.toGenerator() == at::detail::getDefaultCPUGenerator());
}

// Every operation that draws has a generator among its arguments, or calls one that has. None
// means the global one.
std::unique_ptr<at::ObserverContext> note_draws(const at::RecordFunction& operation) {
  const auto schema = operation.operator_schema();
  if (!schema) return nullptr;
  const auto& arguments = schema->arguments();
  const auto inputs = operation.inputs();
  for (std::size_t i = 0; i < std::min<std::size_t>(arguments.size(), inputs.size()); ++i) {
    if (arguments[i].name() == "generator" && is_global_generator(inputs[i])) drew_globally = true;
  }
  return nullptr;
}

}  // namespace

GlobalDrawProbe::GlobalDrawProbe()
    : callback_(at::addThreadLocalCallback(at::RecordFunctionCallback(&note_draws)
                                               .needsInputs(true)
                                               .scopes({at::RecordScope::FUNCTION}))) {
  drew_globally = false;
}

GlobalDrawProbe::~GlobalDrawProbe() {
  at::removeCallback(callback_);
}

bool GlobalDrawProbe::drew() const {
  return drew_globally;
}

}  // namespace lockstep::data

// The fields of an options aggregate by name, to save hyper-parameters in a state and to load them.
//
//   constexpr auto kFields =
//       std::tuple(OptionField("lr", &SGD::lr), OptionField("momentum", &SGD::momentum));
#pragma once

#include <tuple>

#include "lockstep/state/state_dict.h"

namespace lockstep::optim {

template <typename Options, typename T>
struct OptionField {
  constexpr OptionField(const char* name, T Options::*member) : name(name), member(member) {}

  const char* name;
  T Options::*member;
};

template <typename Options, typename... T>
StateDict fields_to_state(const std::tuple<OptionField<Options, T>...>& fields,
                          const Options& options) {
  StateDict state;
  std::apply([&](const auto&... field) { (state.set(field.name, options.*field.member), ...); },
             fields);
  return state;
}

// Throws CheckpointError for a field that is missing or has another type.
template <typename Options, typename... T>
Options fields_from_state(const std::tuple<OptionField<Options, T>...>& fields,
                          const StateDict& state) {
  Options options;
  std::apply(
      [&](const auto&... field) { ((options.*field.member = state.get<T>(field.name)), ...); },
      fields);
  return options;
}

}  // namespace lockstep::optim

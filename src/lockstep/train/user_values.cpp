#include "lockstep/train/user_values.h"

#include <c10/util/Type.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/base/warn.h"
#include "lockstep/state/copy.h"

namespace lockstep {

void UserValues::set_saved(const std::string& key, StateValue value) {
  others_.erase(key);
  saved_.set(key, std::move(value));
}

bool UserValues::contains(std::string_view key) const {
  return saved_.contains(key) || others_.contains(key);
}

void UserValues::erase(std::string_view key) {
  saved_.erase(key);
  if (const auto found = others_.find(key); found != others_.end()) others_.erase(found);
}

std::vector<std::string> UserValues::keys() const {
  std::vector<std::string> keys = saved_.keys();
  for (const auto& [key, value] : others_) keys.push_back(key);
  return keys;
}

StateDict UserValues::state() const {
  for (const auto& [key, value] : others_) {
    warn_once(fmt::format(
        "state.user: '{}' is a {}, which a checkpoint cannot hold: a resumed run does not have it",
        key, type_name(value.type())));
  }
  return copied(saved_);
}

void UserValues::load_state(const StateDict& state) {
  saved_ = copied(state);
  others_.clear();
}

const StateValue& UserValues::saved(std::string_view key, const std::string& wanted) const {
  if (const auto found = others_.find(key); found != others_.end()) {
    fail_type(key, "a " + type_name(found->second.type()), wanted);
  }
  if (!saved_.contains(key)) fail_missing(key, "");
  return saved_.at(key);
}

const std::any& UserValues::other(std::string_view key, const std::string& wanted) const {
  if (saved_.contains(key)) fail_type(key, saved_.at(key).kind(), wanted);
  const auto found = others_.find(key);
  if (found == others_.end()) {
    fail_missing(key, "; a checkpoint cannot hold it, so set it in a resumed run, too");
  }
  return found->second;
}

void UserValues::fail_missing(std::string_view key, std::string_view hint) const {
  throw Error("state.user: there is no '{}'; {}{}", key, suggest(key, keys()), hint);
}

void UserValues::fail_type(std::string_view key, const std::string& held,
                           const std::string& wanted) {
  throw Error("state.user: '{}' is {}, and get() asks for {}", key, held, wanted);
}

void UserValues::fail_range(std::string_view key, const std::string& value) {
  throw Error("state.user: '{}': the integer {} does not fit into the type", key, value);
}

std::string UserValues::type_name(const std::type_info& type) {
  return c10::demangle(type.name());
}

}  // namespace lockstep

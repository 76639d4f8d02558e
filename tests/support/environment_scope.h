// Environment variables for a part of a test.
#pragma once

#include <cstdlib>
#include <map>
#include <optional>
#include <string>

namespace lockstep {

// Sets variables. The destructor gives them the values that they had.
class EnvironmentScope {
 public:
  explicit EnvironmentScope(const std::map<std::string, std::string>& variables) {
    for (const auto& [name, value] : variables) {
      const char* const before = std::getenv(name.c_str());
      before_[name] = before != nullptr ? std::optional<std::string>(before) : std::nullopt;
      ::setenv(name.c_str(), value.c_str(), 1);
    }
  }
  ~EnvironmentScope() {
    for (const auto& [name, value] : before_) {
      if (value) {
        ::setenv(name.c_str(), value->c_str(), 1);
      } else {
        ::unsetenv(name.c_str());
      }
    }
  }
  EnvironmentScope(const EnvironmentScope&) = delete;
  EnvironmentScope& operator=(const EnvironmentScope&) = delete;

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

// The environment variables that torchrun sets for this rank. All ranks are on one host.
inline std::map<std::string, std::string> variables_of_rank(int rank, int size) {
  return {{"RANK", std::to_string(rank)},       {"WORLD_SIZE", std::to_string(size)},
          {"LOCAL_RANK", std::to_string(rank)}, {"LOCAL_WORLD_SIZE", std::to_string(size)},
          {"MASTER_ADDR", "127.0.0.1"},         {"MASTER_PORT", "29500"}};
}

}  // namespace lockstep

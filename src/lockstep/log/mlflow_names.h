// Names of metrics and parameters as MLflow accepts them.
#pragma once

#include <map>
#include <set>
#include <string>

namespace lockstep {

// MLflow accepts letters, digits and - _ . / and spaces, at most 250 of them, and refuses what
// could be another path ("../x", "/x", "a//b").
class MlflowNames {
 public:
  // The name, or what stands for it. Different names have different results. The first name that is
  // changed is shown in a warning.
  const std::string& accepted(const std::string& name);

 private:
  std::map<std::string, std::string> known_;
  std::set<std::string> used_;
  bool warned_ = false;
};

}  // namespace lockstep

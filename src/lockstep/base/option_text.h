// Options as text: for comparing the options of the ranks of a run, and for messages.
//
//   OptionText().with("lr", 0.1).with("milestones", std::vector{2, 4}).str()
//   // "lr=0.1, milestones=[2, 4]"
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {

// Values that differ have different texts: numbers are written with all their digits.
class OptionText {
 public:
  template <typename T>
  OptionText& with(std::string_view name, const T& value) {
    text_ += fmt::format("{}{}={}", text_.empty() ? "" : ", ", name, text_of(value));
    return *this;
  }

  const std::string& str() const { return text_; }

 private:
  template <typename T>
  static std::string text_of(const T& value) {
    return fmt::format("{}", value);
  }
  template <typename T>
  static std::string text_of(const std::optional<T>& value) {
    return value ? text_of(*value) : "none";
  }
  template <typename T>
  static std::string text_of(const std::vector<T>& values) {
    std::vector<std::string> texts;
    for (const T& value : values) texts.push_back(text_of(value));
    return fmt::format("[{}]", fmt::join(texts, ", "));
  }
  template <typename T>
  static std::string text_of(const std::map<std::string, T>& values) {
    std::vector<std::string> texts;
    for (const auto& [name, value] : values) {
      texts.push_back(fmt::format("{}: {}", name, text_of(value)));
    }
    return fmt::format("{{{}}}", fmt::join(texts, ", "));
  }

  std::string text_;
};

}  // namespace lockstep

// Names of checkpoint files that tell the epoch and the metrics:
// "model.{epoch:02d}-{valid_loss:.2f}" becomes "model.07-0.35.pth".
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace lockstep::checkpoint {

// A field is a name in braces, with a format after a colon as in Python: {epoch:04d}, {score:.3f}.
// {epoch} and {step} are integers, all others are real numbers.
class NamePattern {
 public:
  // Throws ConfigError, which quotes the pattern, if its braces or a format are wrong, if it has
  // neither {epoch} nor {step}, so that names would be the same, and if no file can have the name.
  explicit NamePattern(std::string pattern);

  // The names of the fields, in the order of the pattern.
  std::vector<std::string> fields() const;
  bool has(std::string_view field) const;

  // The name of a file, without a folder. It ends with .pth, unless the pattern ends with .pth or
  // .pt itself. `value_of` is called for each field.
  using Value = std::variant<std::int64_t, double>;
  std::string name(const std::function<Value(const std::string& field)>& value_of) const;

 private:
  // Text, and the field that follows it.
  struct Piece {
    std::string text;
    std::string field;   // empty: none follows
    std::string format;  // the text after the colon
  };

  std::string pattern_;
  std::vector<Piece> pieces_;
};

}  // namespace lockstep::checkpoint

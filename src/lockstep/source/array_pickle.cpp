#include "lockstep/source/array_pickle.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <unordered_map>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::data {
namespace {

// A value on the stack. Values refer to each other by their places, so a list that contains itself
// needs no care.
struct Pickled {
  enum class Kind { kNone, kInteger, kText, kTuple, kList, kDict, kGlobal, kType, kArray };
  using Place = std::size_t;

  Kind kind = Kind::kNone;
  std::int64_t integer = 0;       // also true and false
  std::string_view text = {};     // also "module name" of a global, and the bytes of an array
  std::vector<Place> items = {};  // of a dictionary: key, value, key, value, …
  std::vector<std::int64_t> shape = {};
};

class ArrayUnpickler {
 public:
  explicit ArrayUnpickler(std::string_view pickle) : pickle_(pickle) {}

  ArrayPickle read() {
    while (step()) {
    }
    return result(value(pop()));
  }

 private:
  using Kind = Pickled::Kind;
  using Place = Pickled::Place;

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw DataError("byte {}: {}", opcode_at_, fmt::format(format, std::forward<Args>(args)...));
  }

  // Executes one opcode. False if it was the last one.
  bool step() {
    opcode_at_ = at_;
    const auto opcode = static_cast<unsigned char>(take(1)[0]);
    switch (opcode) {
      case '.':
        return false;
      case 0x80:  // PROTO
        take(1);
        break;
      case 0x95:  // FRAME: its length says nothing that we need
        take(8);
        break;
      case '(':
        marks_.push_back(stack_.size());
        break;
      case 'N':
        push({});
        break;
      case 0x88:
      case 0x89:
        push({.kind = Kind::kInteger, .integer = opcode == 0x88 ? 1 : 0});
        break;
      case 'K':
      case 'M':
      case 'J':
        push_integer(opcode == 'K' ? 1 : opcode == 'M' ? 2 : 4);
        break;
      case 'U':  // text and bytes, with a length of 1, 4 or 8 bytes
      case 'C':
      case 0x8c:
        push_text(1);
        break;
      case 'T':
      case 'B':
      case 'X':
        push_text(4);
        break;
      case 0x8d:
      case 0x8e:
      case 0x96:
        push_text(8);
        break;
      case 'c':
        push_global();
        break;
      case 0x93: {  // STACK_GLOBAL
        const std::string_view name = text_of(pop());
        const std::string_view module = text_of(pop());
        push_global(module, name);
        break;
      }
      case 'q':
        remember(unsigned_integer(1));
        break;
      case 'r':
        remember(unsigned_integer(4));
        break;
      case 0x94:  // MEMOIZE
        remember(memo_.size());
        break;
      case 'h':
        recall(unsigned_integer(1));
        break;
      case 'j':
        recall(unsigned_integer(4));
        break;
      default:
        build(opcode);
    }
    return true;
  }

  // The opcodes that make values of other values.
  void build(unsigned char opcode) {
    switch (opcode) {
      case '}':
        push({.kind = Kind::kDict});
        break;
      case ']':
        push({.kind = Kind::kList});
        break;
      case ')':
        push({.kind = Kind::kTuple});
        break;
      case 't':
        push_tuple(pop_mark());
        break;
      case 0x85:
      case 0x86:
      case 0x87: {
        const std::size_t count = opcode - 0x84U;
        if (stack_.size() < bottom() + count) fail("a tuple of more values than there are");
        push_tuple(stack_.size() - count);
        break;
      }
      case 'a':
        extend(Kind::kList, last(1));
        break;
      case 'e':
        extend(Kind::kList, pop_mark());
        break;
      case 's':
        extend(Kind::kDict, last(2));
        break;
      case 'u':
        extend(Kind::kDict, pop_mark());
        break;
      case 'R':
        call();
        break;
      case 'b':
        set_state();
        break;
      default:
        fail("the opcode {:#04x} is not one of a dictionary of arrays", opcode);
    }
  }

  std::string_view take(std::uint64_t count) {
    if (count > pickle_.size() - at_) {
      fail("{} more bytes expected, but the file has only {}", count, pickle_.size() - at_);
    }
    const std::string_view taken = pickle_.substr(at_, static_cast<std::size_t>(count));
    at_ += taken.size();
    return taken;
  }

  std::uint64_t unsigned_integer(std::size_t bytes) {
    std::uint64_t number = 0;
    const std::string_view raw = take(bytes);
    for (std::size_t i = bytes; i > 0; --i) {
      number = number << 8 | static_cast<unsigned char>(raw[i - 1]);
    }
    return number;
  }

  // Only the integer of four bytes has a sign.
  void push_integer(std::size_t bytes) {
    const std::uint64_t number = unsigned_integer(bytes);
    push({.kind = Kind::kInteger,
          .integer = bytes == 4 ? static_cast<std::int32_t>(static_cast<std::uint32_t>(number))
                                : static_cast<std::int64_t>(number)});
  }

  void push_text(std::size_t length_bytes) {
    push({.kind = Kind::kText, .text = take(unsigned_integer(length_bytes))});
  }

  std::string_view take_line() {
    const std::size_t end = pickle_.find('\n', at_);
    if (end == std::string_view::npos) fail("a name without an end");
    const std::string_view line = take(end - at_);
    take(1);
    return line;
  }

  void push_global() {
    const std::string_view module = take_line();
    push_global(module, take_line());
  }

  void push_global(std::string_view module, std::string_view name) {
    // NumPy 2 renamed its core.
    static constexpr std::pair<std::string_view, std::string_view> kKnown[] = {
        {"numpy", "ndarray"},
        {"numpy", "dtype"},
        {"numpy.core.multiarray", "_reconstruct"},
        {"numpy._core.multiarray", "_reconstruct"},
        {"numpy.core.numeric", "_frombuffer"},
        {"numpy._core.numeric", "_frombuffer"},
        {"_codecs", "encode"}};
    if (std::ranges::find(kKnown, std::pair(module, name)) == std::end(kKnown)) {
      fail("'{}.{}' is not allowed: expected a dictionary of arrays of bytes", excerpt(module),
           excerpt(name));
    }
    push({.kind = Kind::kGlobal, .text = name});
  }

  void push(Pickled made) {
    // A file of CIFAR-100 has 150,000 values. The limit keeps a hostile file from taking memory.
    constexpr std::size_t kMostValues = 1'000'000;
    if (values_.size() == kMostValues) fail("more than {} values", kMostValues);
    values_.push_back(std::move(made));
    stack_.push_back(values_.size() - 1);
  }

  // Values below the last mark belong to a value that is not complete yet.
  std::size_t bottom() const { return marks_.empty() ? 0 : marks_.back(); }

  Place pop() {
    if (stack_.size() <= bottom()) fail("a value is missing");
    const Place place = stack_.back();
    stack_.pop_back();
    return place;
  }

  Place top() const {
    if (stack_.size() <= bottom()) fail("a value is missing");
    return stack_.back();
  }

  std::size_t pop_mark() {
    if (marks_.empty()) fail("the start of the values is missing");
    const std::size_t mark = marks_.back();
    marks_.pop_back();
    return mark;
  }

  // Where the last `count` values begin.
  std::size_t last(std::size_t count) const {
    if (stack_.size() < bottom() + count) fail("a value is missing");
    return stack_.size() - count;
  }

  // Takes the values from `first` on off the stack.
  std::vector<Place> pop_from(std::size_t first) {
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(first);
    std::vector<Place> items(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    return items;
  }

  void push_tuple(std::size_t first) { push({.kind = Kind::kTuple, .items = pop_from(first)}); }

  void extend(Kind kind, std::size_t first) {
    const std::vector<Place> added = pop_from(first);
    Pickled& to = value(top());
    if (to.kind != kind || (kind == Kind::kDict && added.size() % 2 != 0)) {
      fail("values for a {}, but there is none", kind == Kind::kDict ? "dictionary" : "list");
    }
    to.items.insert(to.items.end(), added.begin(), added.end());
  }

  void remember(std::uint64_t key) {
    constexpr std::size_t kMostKeys = 1'000'000;
    if (memo_.size() == kMostKeys) fail("more than {} values are remembered", kMostKeys);
    memo_[key] = top();
  }

  void recall(std::uint64_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) fail("value {} was not remembered before", key);
    stack_.push_back(found->second);
  }

  Pickled& value(Place place) { return values_[place]; }

  std::string_view text_of(Place place) {
    if (value(place).kind != Kind::kText) fail("expected text");
    return value(place).text;
  }

  const Pickled& argument(const Pickled& tuple, std::size_t index, Kind kind) {
    if (tuple.kind != Kind::kTuple || index >= tuple.items.size() ||
        value(tuple.items[index]).kind != kind) {
      fail("an argument is missing or of another type");
    }
    return value(tuple.items[index]);
  }

  void call() {
    const Place arguments = pop();
    const Pickled& function = value(pop());
    if (function.kind != Kind::kGlobal) fail("a call of something that is not a function");
    Pickled made;
    if (function.text == "_reconstruct") {
      made = {.kind = Kind::kArray, .shape = {0}};
    } else if (function.text == "dtype") {
      made = type_of(value(arguments));
    } else if (function.text == "encode") {
      made = {.kind = Kind::kText, .text = latin1(argument(value(arguments), 0, Kind::kText).text)};
    } else if (function.text == "_frombuffer") {
      made = from_buffer(value(arguments));
    } else {
      fail("'{}' cannot be called", function.text);
    }
    push(std::move(made));
  }

  Pickled type_of(const Pickled& arguments) {
    const std::string_view name = argument(arguments, 0, Kind::kText).text;
    if (name != "u1" && name != "|u1")
      fail("an array of type '{}', expected 'u1' (bytes)", excerpt(name));
    return {.kind = Kind::kType};
  }

  // Bytes that Python 3 wrote by protocol 2: each is a character of one or two bytes in UTF-8.
  std::string_view latin1(std::string_view utf8) {
    std::string bytes;
    bytes.reserve(utf8.size());
    for (std::size_t i = 0; i < utf8.size(); ++i) {
      const auto first = static_cast<unsigned char>(utf8[i]);
      if (first < 0x80) {
        bytes += utf8[i];
        continue;
      }
      const bool is_pair = (first == 0xc2 || first == 0xc3) && i + 1 < utf8.size() &&
                           (static_cast<unsigned char>(utf8[i + 1]) & 0xc0U) == 0x80U;
      if (!is_pair) fail("expected text of characters below 256");
      bytes += static_cast<char>((first & 0x03U) << 6U |
                                 (static_cast<unsigned char>(utf8[++i]) & 0x3fU));
    }
    // The same text may be converted many times, and only the file's length is honest.
    converted_bytes_ += bytes.size();
    if (converted_bytes_ > pickle_.size()) fail("the same bytes are converted again and again");
    return converted_.emplace_back(std::move(bytes));
  }

  // Of _frombuffer: bytes, type, shape, order.
  Pickled from_buffer(const Pickled& arguments) {
    argument(arguments, 1, Kind::kType);
    if (argument(arguments, 3, Kind::kText).text != "C") fail("an array in Fortran's order");
    return array(argument(arguments, 2, Kind::kTuple), argument(arguments, 0, Kind::kText).text);
  }

  Pickled array(const Pickled& shape, std::string_view bytes) {
    Pickled made{.kind = Kind::kArray, .text = bytes};
    std::uint64_t expected = 1;
    constexpr std::size_t kMostDimensions = 8;
    if (shape.items.size() > kMostDimensions) {
      fail("an array of {} dimensions, expected at most {}", shape.items.size(), kMostDimensions);
    }
    for (std::size_t i = 0; i < shape.items.size(); ++i) {
      const std::int64_t size = argument(shape, i, Kind::kInteger).integer;
      std::uint64_t product = 0;
      if (size < 0 ||
          __builtin_mul_overflow(expected, static_cast<std::uint64_t>(size), &product)) {
        fail("an array of size {}", size);
      }
      expected = product;
      made.shape.push_back(size);
    }
    if (bytes.size() != expected) fail("an array of {} bytes has {}", expected, bytes.size());
    return made;
  }

  // The state of an array: version, shape, type, whether in Fortran's order, bytes.
  void set_state() {
    const Place state = pop();
    const Place of = top();
    if (value(of).kind == Kind::kType) return;  // its byte order, which bytes do not have
    if (value(of).kind != Kind::kArray) fail("a state of something that is not an array");
    const Pickled& tuple = value(state);
    argument(tuple, 2, Kind::kType);
    if (argument(tuple, 3, Kind::kInteger).integer != 0) fail("an array in Fortran's order");
    value(of) = array(argument(tuple, 1, Kind::kTuple), argument(tuple, 4, Kind::kText).text);
  }

  ArrayPickle result(const Pickled& dict) {
    if (dict.kind != Kind::kDict) fail("expected a dictionary");
    ArrayPickle found;
    std::uint64_t bytes = 0;  // a file that has the same value under many keys must not fill memory
    for (std::size_t i = 0; i + 1 < dict.items.size(); i += 2) {
      const std::string key(text_of(dict.items[i]));
      const Pickled& item = value(dict.items[i + 1]);
      if (item.kind == Kind::kArray) {
        bytes += item.text.size();
        if (bytes > pickle_.size()) fail("its values have more bytes than the file");
        found.arrays[key] = {.shape = item.shape, .bytes = std::string(item.text)};
      } else if (item.kind == Kind::kList) {
        bytes += item.items.size();
        if (bytes > pickle_.size()) fail("its values have more bytes than the file");
        if (auto integers = integers_of(item)) found.lists[key] = std::move(*integers);
      }
    }
    return found;
  }

  std::optional<std::vector<std::int64_t>> integers_of(const Pickled& list) {
    std::vector<std::int64_t> integers;
    for (const Place place : list.items) {
      if (value(place).kind != Kind::kInteger) return std::nullopt;
      integers.push_back(value(place).integer);
    }
    return integers;
  }

  std::string_view pickle_;
  std::size_t at_ = 0;
  std::size_t opcode_at_ = 0;
  std::vector<Pickled> values_;
  std::vector<Place> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint64_t, Place> memo_;
  std::deque<std::string> converted_;  // its elements stay where they are
  std::uint64_t converted_bytes_ = 0;
};

}  // namespace

ArrayPickle read_array_pickle(std::string_view pickle) {
  return ArrayUnpickler(pickle).read();
}

}  // namespace lockstep::data

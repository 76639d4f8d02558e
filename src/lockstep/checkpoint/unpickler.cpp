#include "lockstep/checkpoint/unpickler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <deque>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/storage_types.h"

namespace lockstep::checkpoint {
namespace {

// A pickle may put one object in many places, also into itself, and fill it later.
struct Object;
using Ref = Object*;

struct List {  // or a tuple, or a set
  std::vector<Ref> items;
};
struct Dict {
  std::vector<std::pair<Ref, Ref>> items;
};
struct Name {  // of an object in a Python module
  std::string text;
};
struct Storage {  // the memory of which tensors are views
  torch::Tensor numbers;
};
struct Object {
  std::variant<std::monostate, bool, std::int64_t, double, std::string, torch::Tensor, Storage,
               List, Dict, Name>
      value;
};

template <typename T>
T& expect(Ref ref, std::string_view what) {
  T* const value = std::get_if<T>(&ref->value);
  if (value == nullptr) throw CheckpointError("damaged: expected {} in its pickle", what);
  return *value;
}

// The sizes or strides of a tensor.
std::vector<std::int64_t> integers(Ref ref) {
  constexpr std::size_t kMostDimensions = 64;  // as in PyTorch
  const auto& items = expect<List>(ref, "a tuple of integers").items;
  if (items.size() > kMostDimensions) {
    throw CheckpointError("damaged: a tensor of {} dimensions, expected at most {}", items.size(),
                          kMostDimensions);
  }
  std::vector<std::int64_t> out;
  for (const Ref item : items) out.push_back(expect<std::int64_t>(item, "an integer"));
  return out;
}

// The size of a file limits what it may create. A normal pickle has at least two bytes for every
// object and one for every value. A small file has a fixed limit.
class Budget {
 public:
  Budget(std::string_view what, std::uint64_t most) : what_(what), most_(most) {}

  void charge(std::uint64_t count) {
    used_ += count;
    if (used_ > most_) throw CheckpointError("holds more than {} {}", most_, what_);
  }

 private:
  std::string_view what_;
  std::uint64_t most_;
  std::uint64_t used_ = 0;
};
constexpr std::uint64_t kSmall = 1'000'000;

// A view that stays inside its storage; throws CheckpointError otherwise.
torch::Tensor view(const torch::Tensor& storage, std::int64_t offset,
                   const std::vector<std::int64_t>& sizes,
                   const std::vector<std::int64_t>& strides) {
  bool fits = offset >= 0 && sizes.size() == strides.size();
  bool is_empty = false;
  std::int64_t last = offset;
  std::int64_t count = 1;
  for (std::size_t i = 0; fits && i < sizes.size(); ++i) {
    std::int64_t reach = 0;
    fits = sizes[i] >= 0 && strides[i] >= 0 && !__builtin_mul_overflow(count, sizes[i], &count) &&
           !__builtin_mul_overflow(sizes[i] - 1, strides[i], &reach) &&
           !__builtin_add_overflow(last, reach, &last);
    is_empty |= sizes[i] == 0;
  }
  // One stored number may be repeated in a tensor, but not without limit.
  constexpr std::int64_t kMostRepeated = std::int64_t{1} << 26;
  fits = fits && (count <= storage.numel() || count <= kMostRepeated);
  if (!fits || (!is_empty && last >= storage.numel())) {
    throw CheckpointError("damaged: a tensor reaches beyond its {} stored numbers",
                          storage.numel());
  }
  return is_empty ? torch::empty(sizes, storage.options())
                  : storage.as_strided(sizes, strides, offset);
}

using Arguments = std::vector<Ref>;

Ref argument(const Arguments& arguments, std::size_t index) {
  if (index >= arguments.size()) {
    throw CheckpointError("damaged: {} arguments in its pickle, expected more", arguments.size());
  }
  return arguments[index];
}

// A call returns a new object, or one that exists already. An existing object is never copied,
// because a pickle of a few bytes could copy a large object any number of times. For the same
// reason a call charges what it makes, and also what it only looks through, before it does so.
using Result = std::variant<Object, Ref>;

// Text is looked through faster than objects are made.
std::uint64_t work_of(const std::string& text) {
  return text.size() / 8;
}

// PyTorch 2 saves a conjugated or negated view as the plain numbers and a note.
void refuse_lazy_views(Ref notes, Budget& budget) {
  const auto* const dict = std::get_if<Dict>(&notes->value);
  if (dict == nullptr) return;
  budget.charge(dict->items.size());
  for (const auto& [key, value] : dict->items) {
    const auto* const is_set = std::get_if<bool>(&value->value);
    if (is_set == nullptr || !*is_set) continue;
    throw CheckpointError(
        "holds a tensor that is marked as '{}' and not yet computed; in Python, save "
        "tensor.resolve_conj().resolve_neg()",
        printable(expect<std::string>(key, "the name of a mark")));
  }
}

// (storage, offset, sizes, strides, requires_grad, hooks, notes)
Result rebuild_tensor(const Arguments& arguments, Budget& budget) {
  constexpr std::size_t kNotes = 6;
  constexpr std::uint64_t kWork = 10;
  budget.charge(kWork);
  if (arguments.size() > kNotes) refuse_lazy_views(arguments[kNotes], budget);
  return Object{view(expect<Storage>(argument(arguments, 0), "a storage").numbers,
                     expect<std::int64_t>(argument(arguments, 1), "an offset"),
                     integers(argument(arguments, 2)), integers(argument(arguments, 3)))};
}

Result first_argument(const Arguments& arguments, Budget&) {
  return argument(arguments, 0);
}

// () or ({key: count, ...})
Result make_counter(const Arguments& arguments, Budget&) {
  if (arguments.empty()) return Object{Dict()};
  expect<Dict>(arguments[0], "a dictionary of counts");
  return arguments[0];
}

// () or ([(key, value), ...])
Result make_dict(const Arguments& arguments, Budget& budget) {
  Dict dict;
  if (!arguments.empty()) {
    const auto& pairs = expect<List>(arguments[0], "a list of pairs").items;
    budget.charge(pairs.size());
    for (const Ref pair : pairs) {
      const auto& items = expect<List>(pair, "a pair").items;
      dict.items.emplace_back(argument(items, 0), argument(items, 1));
    }
  }
  return Object{std::move(dict)};
}

Result make_list(const Arguments& arguments, Budget&) {
  if (arguments.empty()) return Object{List()};
  return arguments[0];
}

// ("cuda", 1): "cuda:1"
Result make_device(const Arguments& arguments, Budget&) {
  const auto& name = expect<std::string>(argument(arguments, 0), "the name of a device");
  if (arguments.size() == 1) return arguments[0];
  constexpr std::size_t kLongestName = 32;
  if (name.size() > kLongestName) throw CheckpointError("damaged: a device of a long name");
  return Object{
      fmt::format("{}:{}", name, expect<std::int64_t>(arguments[1], "the number of a device"))};
}

// (text, "latin1"): the bytes whose numbers are the characters of the text. Protocols before 3
// write bytes in this way.
Result encode(const Arguments& arguments, Budget& budget) {
  const auto& text = expect<std::string>(argument(arguments, 0), "text");
  budget.charge(work_of(text));
  const bool is_ascii = std::ranges::all_of(text, [](char c) { return (c & 0x80) == 0; });
  if (is_ascii) return arguments[0];
  if (expect<std::string>(argument(arguments, 1), "the name of an encoding") != "latin1") {
    throw CheckpointError("damaged: expected bytes as text of latin1");
  }
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if (lead < 0x80) {
      bytes += text[i];
    } else if ((lead == 0xc2 || lead == 0xc3) && i + 1 < text.size()) {
      bytes += static_cast<char>((lead & 0x3U) << 6 | (text[++i] & 0x3fU));
    } else {
      throw CheckpointError("damaged: a character beyond latin1 among bytes");
    }
  }
  return Object{std::move(bytes)};
}

Result rebuild_from_type(const Arguments& arguments, Budget& budget);

// The functions that a pickle may call.
using PickledFunction = Result (*)(const Arguments&, Budget&);
PickledFunction function_named(std::string_view name) {
  static const std::unordered_map<std::string_view, PickledFunction> functions = {
      {"collections.OrderedDict", make_dict},
      {"collections.Counter", make_counter},
      {"torch._utils._rebuild_tensor", rebuild_tensor},
      {"torch._utils._rebuild_tensor_v2", rebuild_tensor},
      {"torch._utils._rebuild_parameter", first_argument},
      {"torch._utils._rebuild_parameter_with_state", first_argument},
      {"torch._tensor._rebuild_from_type_v2", rebuild_from_type},
      {"torch.Size", make_list},
      {"torch.device", make_device},
      {"_codecs.encode", encode},
      {"builtins.set", make_list},
      {"__builtin__.set", make_list},
      // Version 0.1.0 of Lockstep wrote these, by LibTorch's own pickler.
      {"torch.jit._pickle.build_intlist", first_argument},
      {"torch.jit._pickle.build_doublelist", first_argument},
      {"torch.jit._pickle.build_boollist", first_argument},
      {"torch.jit._pickle.build_tensorlist", first_argument},
      {"torch.jit._pickle.restore_type_tag", first_argument}};
  const auto found = functions.find(name);
  return found == functions.end() ? nullptr : found->second;
}

// The names that a pickle may use but not call: types of numbers, and those of plain tensors.
bool is_plain(std::string_view name) {
  static const std::unordered_set<std::string_view> names = {
      "torch._tensor.Tensor", "torch.Tensor",    "torch.nn.parameter.Parameter",
      "torch.float32",        "torch.float64",   "torch.float16",
      "torch.bfloat16",       "torch.int64",     "torch.int32",
      "torch.int16",          "torch.int8",      "torch.uint8",
      "torch.bool",           "torch.complex64", "torch.complex128",
      "torch.strided"};
  return names.contains(name) || storage_type_named(name);
}

PickledFunction function_of(Ref callee) {
  const std::string& name = expect<Name>(callee, "a function").text;
  const PickledFunction function = function_named(name);
  if (function == nullptr) throw CheckpointError("damaged: its pickle calls {}", name);
  return function;
}

// (function, type, arguments, attributes)
Result rebuild_from_type(const Arguments& arguments, Budget& budget) {
  const Ref callee = argument(arguments, 0);
  if (function_named(expect<Name>(callee, "a function").text) == rebuild_from_type) {
    throw CheckpointError("damaged: a tensor that is rebuilt by its own rebuilding");
  }
  return function_of(callee)(expect<List>(argument(arguments, 2), "arguments").items, budget);
}

// clang-format off
enum class Op : unsigned char {
  kMark = '(', kStop = '.', kPop = '0', kPopMark = '1', kDuplicate = '2', kBytes4 = 'B', kBytes1 = 'C',
  kFloat = 'G', kInt4 = 'J', kInt1 = 'K', kInt2 = 'M', kNone = 'N', kPersistentId = 'Q', kReduce = 'R',
  kString4 = 'T', kString1 = 'U', kUnicode4 = 'X', kEmptyList = ']', kAppend = 'a', kBuild = 'b',
  kGlobal = 'c', kAppends = 'e', kGet1 = 'h', kGet4 = 'j', kPut1 = 'q', kPut4 = 'r', kSetItem = 's',
  kTuple = 't', kEmptyTuple = ')', kSetItems = 'u', kEmptyDict = '}', kProtocol = 0x80, kNewObject = 0x81,
  kTuple1 = 0x85, kTuple2 = 0x86, kTuple3 = 0x87, kTrue = 0x88, kFalse = 0x89, kLong = 0x8a,
  kUnicode1 = 0x8c, kUnicode8 = 0x8d, kBytes8 = 0x8e, kEmptySet = 0x8f, kAddItems = 0x90,
  kStackGlobal = 0x93, kMemoize = 0x94, kFrame = 0x95
};
// clang-format on

// The stack machine for which a pickle is a program: the instructions of Python's protocols 2 to 5.
class Unpickler {
 public:
  Unpickler(std::span<const char> pickle, const ReadStorage& read_storage)
      : rest_(pickle),
        read_storage_(read_storage),
        made_("objects", kSmall + pickle.size() / 2),
        kept_("objects to recall", kSmall + pickle.size() / 2) {}

  // The result lives as long as this object.
  Ref run() {
    while (true) {
      const auto code = static_cast<Op>(take(1)[0]);
      if (code == Op::kStop) return pop();
      step(code);
    }
  }

 private:
  // clang-format off
  void step(Op code) {
    switch (code) {
      case Op::kProtocol: take(1); break;
      case Op::kFrame: take(8); break;
      case Op::kMark: marks_.push_back(stack_.size()); break;
      case Op::kPop: pop(); break;
      case Op::kPopMark: pop_to_mark(); break;
      case Op::kDuplicate: repeat(top()); break;
      case Op::kNone: repeat(&none_); break;
      case Op::kTrue: repeat(&true_); break;
      case Op::kFalse: repeat(&false_); break;
      case Op::kInt4: push({std::int64_t{number<std::int32_t>()}}); break;
      case Op::kInt1: repeat(&small_[number<std::uint8_t>()]); break;
      case Op::kInt2: push({std::int64_t{number<std::uint16_t>()}}); break;
      case Op::kLong: push({long_number(number<std::uint8_t>())}); break;
      case Op::kFloat: push({big_endian_double()}); break;
      case Op::kString1: case Op::kUnicode1: case Op::kBytes1: push({text(number<std::uint8_t>())}); break;
      case Op::kString4: case Op::kUnicode4: case Op::kBytes4: push({text(number<std::uint32_t>())}); break;
      case Op::kUnicode8: case Op::kBytes8: push({text(number<std::uint64_t>())}); break;
      case Op::kEmptyDict: push({Dict()}); break;
      case Op::kEmptyList: case Op::kEmptyTuple: case Op::kEmptySet: push({List()}); break;
      case Op::kTuple: push({List{pop_to_mark()}}); break;
      case Op::kTuple1: push({List{pop(1)}}); break;
      case Op::kTuple2: push({List{pop(2)}}); break;
      case Op::kTuple3: push({List{pop(3)}}); break;
      case Op::kAppend: append(pop(1)); break;
      case Op::kAppends: case Op::kAddItems: append(pop_to_mark()); break;
      case Op::kSetItem: set_items(pop(2)); break;
      case Op::kSetItems: set_items(pop_to_mark()); break;
      case Op::kPut1: keep(number<std::uint8_t>()); break;
      case Op::kPut4: keep(number<std::uint32_t>()); break;
      case Op::kMemoize: keep(memo_.size()); break;
      case Op::kGet1: repeat(recall(number<std::uint8_t>())); break;
      case Op::kGet4: repeat(recall(number<std::uint32_t>())); break;
      case Op::kGlobal: { const std::string module = line(); push(named(module, line())); break; }
      case Op::kStackGlobal: { const auto names = pop(2); push(named(text_of(names[0]), text_of(names[1]))); break; }
      case Op::kReduce: case Op::kNewObject: { const auto both = pop(2); call(both[0], both[1]); break; }
      case Op::kBuild: pop(); top(); break;  // attributes of the object, which are not its content
      case Op::kPersistentId: push(storage(pop())); break;
      default: throw CheckpointError("damaged: 0x{:02x} is not an instruction of a pickle", static_cast<int>(code));
    }
  }
  // clang-format on

  void call(Ref callee, Ref arguments) {
    Result result = function_of(callee)(expect<List>(arguments, "arguments").items, made_);
    if (const Ref* const same = std::get_if<Ref>(&result)) {
      repeat(*same);
    } else {
      push(std::move(std::get<Object>(result)));
    }
  }

  std::span<const char> take(std::uint64_t count) {
    if (count > rest_.size()) throw CheckpointError("damaged: its pickle is cut short");
    const auto taken = rest_.first(static_cast<std::size_t>(count));
    rest_ = rest_.subspan(static_cast<std::size_t>(count));
    return taken;
  }

  template <typename T>
  T number() {
    T value = 0;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    static_assert(std::endian::native == std::endian::little);
    return value;
  }

  std::int64_t long_number(unsigned bytes) {
    const auto digits = take(bytes);
    if (bytes > 8) throw CheckpointError("holds an integer of {} bytes, expected 8 or less", bytes);
    if (bytes == 0) return 0;
    std::uint64_t value = (digits.back() & 0x80) != 0 ? ~std::uint64_t{0} : 0;
    std::memcpy(&value, digits.data(), bytes);
    return static_cast<std::int64_t>(value);
  }

  double big_endian_double() {
    return std::bit_cast<double>(__builtin_bswap64(number<std::uint64_t>()));
  }

  std::string text(std::uint64_t size) {
    const auto bytes = take(size);
    return {bytes.begin(), bytes.end()};
  }

  std::string line() {
    std::string out;
    for (char c = take(1)[0]; c != '\n'; c = take(1)[0]) out += c;
    return out;
  }

  void push(Object object) {
    made_.charge(1);
    objects_.push_back(std::move(object));
    stack_.push_back(&objects_.back());
  }

  void repeat(Ref ref) { stack_.push_back(ref); }

  Ref top() const {
    if (stack_.size() <= bottom())
      throw CheckpointError("damaged: its pickle pops a value from an empty stack");
    return stack_.back();
  }

  Ref pop() {
    const Ref ref = top();
    stack_.pop_back();
    return ref;
  }

  std::vector<Ref> pop(std::size_t count) {
    std::vector<Ref> items(count);
    for (std::size_t i = count; i-- > 0;) items[i] = pop();
    return items;
  }

  std::size_t bottom() const { return marks_.empty() ? 0 : marks_.back(); }

  std::vector<Ref> pop_to_mark() {
    if (marks_.empty())
      throw CheckpointError("damaged: its pickle pops to a mark that it did not set");
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<Ref> items(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return items;
  }

  void append(const std::vector<Ref>& items) {
    auto& list = expect<List>(top(), "a list to append to").items;
    list.insert(list.end(), items.begin(), items.end());
  }

  void set_items(const std::vector<Ref>& items) {
    if (items.size() % 2 != 0)
      throw CheckpointError("damaged: a key without a value in its pickle");
    auto& dict = expect<Dict>(top(), "a dictionary to add to").items;
    for (std::size_t i = 0; i < items.size(); i += 2) dict.emplace_back(items[i], items[i + 1]);
  }

  static std::array<Object, 256> small_integers() {
    std::array<Object, 256> all;
    for (std::size_t i = 0; i < all.size(); ++i) all[i].value = static_cast<std::int64_t>(i);
    return all;
  }

  void keep(std::size_t index) {
    kept_.charge(1);
    memo_[index] = top();
  }

  Ref recall(std::size_t index) const {
    const auto found = memo_.find(index);
    if (found == memo_.end())
      throw CheckpointError("damaged: its pickle reads a memo entry that it did not store");
    return found->second;
  }

  static const std::string& text_of(Ref ref) { return expect<std::string>(ref, "a name"); }

  static Object named(const std::string& module, const std::string& name) {
    std::string whole = module + "." + name;
    if (function_named(whole) == nullptr && !is_plain(whole)) {
      throw CheckpointError(
          "needs Python's {}, expected tensors, numbers, text, lists and dictionaries alone; in "
          "Python, save what state_dict() gives",
          printable(whole));
    }
    return {Name{std::move(whole)}};
  }

  // ("storage", type, key, device, size)
  Object storage(Ref id) {
    const auto& items = expect<List>(id, "a storage").items;
    const std::string& type = expect<Name>(argument(items, 1), "a type of storage").text;
    const auto known = storage_type_named(type);
    if (!known) {
      throw CheckpointError("holds a storage of Python's {}, which Lockstep does not know", type);
    }
    const auto& key = expect<std::string>(argument(items, 2), "a storage's key");
    made_.charge(work_of(key));  // it is compared with other keys
    return {Storage{
        read_storage_(key, *known, expect<std::int64_t>(argument(items, 4), "a storage's size"))}};
  }

  std::span<const char> rest_;
  std::deque<Object> objects_;
  const ReadStorage& read_storage_;
  Budget made_;
  Budget kept_;
  // Values that cannot change exist once.
  Object none_, true_{true}, false_{false};
  std::array<Object, 256> small_ = small_integers();
  std::vector<Ref> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::size_t, Ref> memo_;
};

// Converts the values of a pickle to a tree. Objects that a pickle shares are copied here, which
// could take any amount of memory. Tensors that share their numbers are hashed and loaded one by
// one, which could take any amount of time. The budgets limit both.
class Converter {
 public:
  Converter(std::uint64_t pickle_bytes, std::uint64_t file_bytes)
      : values_("values", kSmall + pickle_bytes),
        characters_("characters of text", 10 * (kSmall + pickle_bytes)),
        tensor_bytes_("bytes of tensors, though the file is much smaller",
                      kSmallTensors + kMostNames * file_bytes) {}

  StateValue convert(Ref ref, int depth = 0) {
    if (depth > kDepth) throw CheckpointError("nested deeper than {} levels", kDepth);
    values_.charge(1);
    return std::visit([&](const auto& held) { return convert_held(held, depth); }, ref->value);
  }

 private:
  static constexpr int kDepth = 200;
  static constexpr std::uint64_t kSmallTensors = std::uint64_t{256} << 20;
  // A model may have a block of weights under many names (ALBERT has one under 12), and its file
  // contains the block once.
  static constexpr std::uint64_t kMostNames = 64;

  template <typename T>
  StateValue convert_held(const T& plain, int) {
    return plain;
  }
  StateValue convert_held(const std::string& text, int) { return charged(text); }
  StateValue convert_held(const torch::Tensor& tensor, int) {
    tensor_bytes_.charge(tensor.nbytes());
    return tensor;
  }
  StateValue convert_held(const Storage& storage, int depth) {
    return convert_held(storage.numbers, depth);
  }
  StateValue convert_held(std::monostate, int) { return {}; }
  StateValue convert_held(const Name& name, int) { return name.text; }
  StateValue convert_held(const List& list, int depth) {
    StateList out;
    for (const Ref item : list.items) out.push_back(convert(item, depth + 1));
    return out;
  }
  StateValue convert_held(const Dict& dict, int depth) {
    std::vector<StateDict::Entry> out;
    for (const auto& [key, value] : dict.items)
      out.emplace_back(key_of(key), convert(value, depth + 1));
    return StateDict(std::move(out));
  }

  std::string key_of(Ref key) {
    if (const auto* const number = std::get_if<std::int64_t>(&key->value)) {
      return std::to_string(*number);
    }
    if (const auto* const text = std::get_if<std::string>(&key->value)) return charged(*text);
    throw CheckpointError("expected text or integers as keys of a dictionary");
  }

  const std::string& charged(const std::string& text) {
    characters_.charge(text.size());
    return text;
  }

  Budget values_;
  Budget characters_;
  Budget tensor_bytes_;
};

}  // namespace

StateValue unpickle(std::span<const char> pickle, const PickleSource& source) {
  Unpickler unpickler(pickle, source.read_storage);
  return Converter(pickle.size(), source.bytes).convert(unpickler.run());
}

}  // namespace lockstep::checkpoint

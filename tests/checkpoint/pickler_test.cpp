#include "lockstep/checkpoint/pickler.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/unpickler.h"

namespace lockstep::checkpoint {
namespace {

using testing::Contains;
using testing::Each;

// The Python names that a pickle uses, and its instructions.
struct Listing {
  std::multiset<std::string> globals;
  std::set<char> instructions;
};

// Reads the instructions that the pickler writes; any other instruction fails the test.
Listing disassemble(const std::string& program) {
  Listing listing;
  std::size_t at = 0;
  const auto skip = [&](std::size_t bytes) { at += bytes; };
  while (at < program.size()) {
    const char code = program[at++];
    listing.instructions.insert(code);
    if (code == 'c') {
      const std::size_t middle = program.find('\n', at), end = program.find('\n', middle + 1);
      listing.globals.insert(program.substr(at, middle - at) + "." +
                             program.substr(middle + 1, end - middle - 1));
      at = end + 1;
    } else if (code == 'X') {
      std::uint32_t size = 0;
      std::memcpy(&size, &program[at], sizeof size);
      skip(4 + size);
    } else if (code == '\x8a') {
      skip(1 + static_cast<unsigned char>(program[at]));
    } else if (code == 'J') {
      skip(4);
    } else if (code == 'G') {
      skip(8);
    } else if (code == '\x80' || code == 'q' || code == 'h') {
      skip(1);
    } else if (std::string_view("e}]).(NQRut\x88\x89\x86").find(code) == std::string_view::npos) {
      ADD_FAILURE() << "instruction " << int(code) << " at " << at;
      break;
    }
  }
  EXPECT_EQ(at, program.size());
  return listing;
}

StateDict every_kind() {
  return {{"none", StateValue()},
          {"yes", true},
          {"count", 7},
          {"negative", -70'000},
          {"large", std::int64_t{1} << 60},
          {"ratio", 0.1},
          {"name", "täst"},
          {"raw", std::string("\xff\0", 2)},
          {"list", StateList{1, 2.5, "three", StateList{}, torch::ones({2})}},
          {"nested", StateDict{{"a.b/c", torch::arange(6).reshape({2, 3})}}},
          {"half", torch::ones({3}, torch::kHalf)},
          {"bfloat16", torch::ones({3}, torch::kBFloat16)},
          {"bytes", torch::arange(5, torch::kUInt8)},
          {"complex", torch::ones({2}, torch::kComplexDouble)},
          {"flags", torch::ones({2}, torch::kBool)},
          {"undefined", torch::Tensor()},
          {"no_elements", torch::empty({0, 4})}};
}

// The lists of torch/_weights_only_unpickler.py in PyTorch 2.6, as far as they are relevant here.
TEST(Pickler, AsksForNothingThatTorchLoadRefusesByDefault) {
  const std::set<std::string> allowed = {
      "_codecs.encode",        "collections.OrderedDict",   "torch._utils._rebuild_tensor_v2",
      "torch.FloatStorage",    "torch.DoubleStorage",       "torch.HalfStorage",
      "torch.BFloat16Storage", "torch.LongStorage",         "torch.IntStorage",
      "torch.ShortStorage",    "torch.CharStorage",         "torch.ByteStorage",
      "torch.BoolStorage",     "torch.ComplexFloatStorage", "torch.ComplexDoubleStorage"};
  const Listing listing = disassemble(pickle(every_kind()).program);
  for (const std::string& name : listing.globals) EXPECT_THAT(allowed, Contains(name));
  EXPECT_EQ(listing.globals.count("torch._utils._rebuild_tensor_v2"), 1u) << "recalled afterwards";
  // torch.load knows GLOBAL, REDUCE, BINPERSID and the plain values, and neither BINUNICODE8 nor
  // LONG4.
  const std::string_view known = "\x80.c)}](eutRQNXJGqh\x86\x88\x89\x8a";
  for (const char code : listing.instructions) EXPECT_NE(known.find(code), known.npos) << code;
}

TEST(Pickler, ComesBack) {
  const Pickled pickled = pickle(every_kind());
  const auto read = [&](const std::string& key, torch::ScalarType type, std::int64_t size) {
    const auto values = stored(pickled.storages.at(std::stoul(key))).flatten();
    EXPECT_EQ(values.scalar_type(), type);
    EXPECT_EQ(values.numel(), size);
    return values;
  };
  const StateValue back = unpickle(pickled.program, {.read_storage = read, .bytes = 1000});
  const StateDict& state = *back.get_if<StateDict>();
  EXPECT_EQ(state.get<std::int64_t>("large"), std::int64_t{1} << 60);
  EXPECT_EQ(state.get<int>("negative"), -70'000);
  EXPECT_EQ(state.get<std::string>("raw"), std::string("\xff\0", 2));
  EXPECT_NE(state.at("undefined").get_if<std::monostate>(), nullptr);
  EXPECT_EQ(state.get<torch::Tensor>("no_elements").sizes(), (std::vector<std::int64_t>{0, 4}));
}

TEST(Pickler, TheSameNumbersAreOneStorage) {
  const auto weight = torch::ones({2, 3});
  EXPECT_EQ(pickle({{"a", weight}, {"b", weight.flatten()}, {"c", weight.clone()}}).storages.size(),
            2u);
  EXPECT_EQ(pickle({{"a", weight}, {"b", weight.t()}, {"c", weight.t()}}).storages.size(), 2u);
  EXPECT_EQ(pickle({{"a", weight}, {"b", weight.view(torch::kInt)}}).storages.size(), 2u);
}

TEST(Pickler, SaysWhatCannotBeSaved) {
  EXPECT_THROW(pickle({{"a", torch::eye(2).to_sparse()}}), CheckpointError);
}

TEST(Pickler, StoredIsWhatTheTensorShows) {
  const auto z = torch::complex(torch::ones({2}), torch::ones({2}));
  EXPECT_TRUE(
      torch::view_as_real(stored(z.conj())).equal(torch::view_as_real(z.conj().resolve_conj())));
  const auto plain = torch::ones({3});
  EXPECT_EQ(stored(plain).data_ptr(), plain.data_ptr()) << "copied";
}

}  // namespace
}  // namespace lockstep::checkpoint

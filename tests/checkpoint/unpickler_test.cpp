#include "lockstep/checkpoint/unpickler.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/file.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/checkpoint/pickle.h"
#include "lockstep/state/hash.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

// Files that Python wrote: scripts/goldens/checkpoint_python.py.
fs::path python(const std::string& name) {
  return fs::path(LOCKSTEP_GOLDENS) / "python" / name;
}

std::string refusal(const std::function<void()>& reading) {
  try {
    reading();
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "nothing was refused";
}

TEST(Unpickler, ReadsAStateDictOfPythonInItsOrder) {
  const StateDict weights = load_weights(python("state_dict.pth"));
  EXPECT_THAT(weights.keys(),
              ElementsAre("0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean",
                          "1.running_var", "1.num_batches_tracked", "3.weight", "3.bias"));
  EXPECT_EQ(weights.get<torch::Tensor>("1.num_batches_tracked").item<std::int64_t>(), 1);
  EXPECT_EQ(weights.get<torch::Tensor>("0.weight").sizes(),
            (std::vector<std::int64_t>{2, 1, 3, 3}));
}

TEST(Unpickler, TheWeightsComputeWhatTheyDoInPython) {
  const StateDict weights = load_weights(python("state_dict.pth"));
  const auto w = [&](const char* name) { return weights.get<torch::Tensor>(name); };
  auto x = torch::linspace(-1, 1, 32).reshape({2, 1, 4, 4});
  x = torch::conv2d(x, w("0.weight"), w("0.bias"));
  x = torch::batch_norm(x, w("1.weight"), w("1.bias"), w("1.running_mean"), w("1.running_var"),
                        /*training=*/false, 0.1, 1e-5, false);
  x = torch::linear(x.flatten(1), w("3.weight"), w("3.bias"));
  std::ifstream file(python("outputs.json"));
  const auto expected = nlohmann::json::parse(file).at("outputs");
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j) {
      EXPECT_NEAR(x[i][j].item<double>(), expected[i][j].get<double>(), 1e-5);
    }
  }
}

TEST(Unpickler, TheProtocolAndTheWrappingDoNotMatter) {
  const auto expected = content_hash(load_weights(python("state_dict.pth")));
  EXPECT_EQ(content_hash(load_weights(python("protocol5.pth"))), expected);
  EXPECT_EQ(content_hash(load_weights(python("wrapped.pth"))), expected);
}

TEST(Unpickler, ACheckpointOfPythonIsReadWithItsOptimizer) {
  const auto [state, is_ours] = read(python("checkpoint.pth"));
  EXPECT_FALSE(is_ours);
  EXPECT_EQ(state.get<int>("epoch"), 3);
  const auto optimizer = state.get<StateDict>("optimizer_state_dict");
  EXPECT_TRUE(optimizer.get<StateDict>("state").get<StateDict>("0").contains("exp_avg"));
  EXPECT_EQ(load_weights(python("checkpoint.pth")).size(), 9u);
}

TEST(Unpickler, EveryKindOfValue) {
  const StateDict all = read(python("everything.pth")).state;
  const auto tensor = [&](const char* key) { return all.get<torch::Tensor>(key); };
  EXPECT_TRUE(tensor("half").equal(torch::tensor({0.5, 2.0}).to(torch::kHalf)));
  EXPECT_TRUE(tensor("bfloat16").equal(torch::tensor({0.5, 2.0}).to(torch::kBFloat16)));
  EXPECT_EQ(tensor("double").item<double>(), 1.0 / 3);
  EXPECT_EQ(tensor("int64").item<std::int64_t>(), -(std::int64_t{1} << 40));
  EXPECT_EQ(tensor("int32").item<int>(), -7);
  EXPECT_EQ(tensor("int16").item<int>(), 300);
  EXPECT_EQ(tensor("int8").item<int>(), -8);
  EXPECT_EQ(tensor("uint8").item<int>(), 255);
  EXPECT_TRUE(tensor("bool").equal(torch::tensor({true, false})));
  EXPECT_EQ(tensor("complex").scalar_type(), torch::kComplexFloat);
  EXPECT_EQ(tensor("scalar").dim(), 0);
  EXPECT_EQ(tensor("empty").sizes(), (std::vector<std::int64_t>{0, 4}));
  EXPECT_TRUE(tensor("transposed").equal(torch::arange(12.0).reshape({3, 4}).t()));
  EXPECT_TRUE(tensor("part").equal(torch::arange(4.0, 8.0)));
  EXPECT_EQ(tensor("part").storage().data(), tensor("transposed").storage().data());
  EXPECT_TRUE(tensor("expanded").equal(torch::full({3}, 5.0)));
  EXPECT_TRUE(tensor("parameter").equal(torch::ones(2)));
  EXPECT_NE(all.at("none").get_if<std::monostate>(), nullptr);
  EXPECT_TRUE(all.get<bool>("true"));
  EXPECT_EQ(all.get<int>("small"), 7);
  EXPECT_EQ(all.get<int>("negative"), -70000);
  EXPECT_EQ(all.get<std::int64_t>("large"), std::int64_t{1} << 60);
  EXPECT_EQ(all.get<double>("ratio"), 0.1);
  EXPECT_EQ(all.get<std::string>("text"), "täst");
  EXPECT_EQ(all.get<std::string>("bytes"), std::string("\0raw", 4));
  EXPECT_EQ(all.get<StateList>("list").size(), 2u);
  EXPECT_EQ(all.get<StateList>("tuple").size(), 4u);
  EXPECT_EQ(all.get<StateList>("set").size(), 1u);
  EXPECT_EQ(all.get<StateList>("size").size(), 2u);
  EXPECT_EQ(all.get<std::string>("device"), "cuda:1");
  EXPECT_EQ(all.get<std::string>("dtype"), "torch.float32");
  EXPECT_EQ(all.get<StateDict>("ordered").get<int>("a"), 1);
  EXPECT_EQ(all.get<std::string>("5"), "a key that is a number");
}

TEST(Unpickler, RunsNothing) {
  fs::remove("/tmp/lockstep_hostile_pickle_was_run");
  EXPECT_THAT(refusal([] { read(python("hostile.pth")); }), HasSubstr("posix.system"));
  EXPECT_FALSE(fs::exists("/tmp/lockstep_hostile_pickle_was_run"));
}

TEST(Unpickler, SaysWhatItCannotTake) {
  EXPECT_THAT(refusal([] { read(python("whole_model.pth")); }),
              AllOf(HasSubstr("whole_model.pth"),
                    HasSubstr("torch.nn.modules.container.Sequential"), HasSubstr("state_dict()")));
  EXPECT_THAT(refusal([] { read(python("tensor.pth")); }), HasSubstr("found a tensor"));
  EXPECT_THAT(refusal([] { read(python("legacy.pth")); }), HasSubstr("expected a zip archive"));
  EXPECT_THAT(refusal([] { load_weights(python("everything.pth")); }),
              AllOf(HasSubstr("everything.pth"), HasSubstr("expected weights")));
}

// Runs a pickle with these instructions.
StateValue run(const std::string& program) {
  const auto zeros = [](const std::string&, torch::ScalarType type, std::int64_t size) {
    return torch::zeros({size}, type);
  };
  return unpickle(program, {.read_storage = zeros, .bytes = program.size()});
}

TEST(Unpickler, ADamagedPickleIsRefused) {
  for (const std::string program : {"",
                                    "N",
                                    ".",
                                    "(.",
                                    "0.",
                                    "t.",
                                    "a.",
                                    "]a.",
                                    "}Ns.",
                                    "}(Nu.",
                                    "h\1.",
                                    "X\xff\xff\xff\x7f.",
                                    "\x8a\x09"
                                    "123456789.",
                                    "NR.",
                                    "cos\nsystem\n.",
                                    "cos\nsystem",
                                    "ccollections\nOrderedDict\nNR.",
                                    "ctorch._utils\n_rebuild_tensor_v2\n)R.",
                                    "NQ.",
                                    ")Q.",
                                    "\xff.",
                                    "}(K\1K\2K\3u.",
                                    "}}K\1s."}) {
    EXPECT_THAT(refusal([&] { run(program); }), testing::Not("nothing was refused")) << program;
  }
}

// "(storage of 4, offset, (size), (stride))"
std::string tensor_program(const std::string& offset, const std::string& size,
                           const std::string& stride) {
  return "ctorch._utils\n_rebuild_tensor_v2\n((U\7storagectorch\nFloatStorage\nU\1"
         "0U\3cpuK\4tQ" +
         offset + "(" + size + "t(" + stride + "ttR.";
}

TEST(Unpickler, ATensorStaysInsideItsStorage) {
  const std::string huge = "\x8a\x08" + std::string(7, '\xff') + "\x7f";
  EXPECT_NE(run(tensor_program("K\1", "K\3", "K\1")).get_if<torch::Tensor>(), nullptr);
  for (const auto& program :
       {tensor_program("K\2", "K\3", "K\1"), tensor_program("K\1", "K\3", "K\2"),
        tensor_program("J\xff\xff\xff\xff", "K\1", "K\1"),
        tensor_program("K\1", "J\xff\xff\xff\xff", "K\1"), tensor_program("K\1", "K\2", huge),
        tensor_program(huge, "K\2", "K\1"), tensor_program("K\1", huge + huge, "K\1K\1"),
        tensor_program("K\1", "K\1K\1", "K\1"),
        tensor_program("K\1", "J" + std::string("\0\0\0\x7f", 4), std::string("K\0", 2))}) {
    EXPECT_THAT(refusal([&] { run(program); }), HasSubstr("reaches beyond"));
  }
}

// PyTorch saves x.conj() as the numbers of x and a note.
TEST(Unpickler, AViewThatIsNotYetComputedIsRefused) {
  const auto with_note = [](const std::string& value) {
    std::string program = tensor_program("K\1", "K\3", "K\1");
    program.resize(program.size() - 3);  // without the last "tR."
    return run(program + "\x89N}U\4conj" + value + "stR.");
  };
  EXPECT_NE(with_note("\x89").get_if<torch::Tensor>(), nullptr);
  EXPECT_THAT(refusal([&] { with_note("\x88"); }),
              AllOf(HasSubstr("'conj'"), HasSubstr("resolve_conj()")));
}

// torch's MultiStepLR stores its milestones as a Counter.
TEST(Unpickler, ReadsACounter) {
  const StateValue value = run("ccollections\nCounter\n}K\5K\2s\x85R.");
  ASSERT_NE(value.get_if<StateDict>(), nullptr);
  EXPECT_EQ(value.get_if<StateDict>()->get<int>("5"), 2);
  EXPECT_THAT(refusal([] { run("ccollections\nCounter\n]\x85R."); }), HasSubstr("counts"));
}

TEST(Unpickler, WhatHoldsItselfOrGrowsWithoutEndIsRefused) {
  EXPECT_THAT(refusal([] { run(std::string("]q\0h\0a.", 7)); }), HasSubstr("nested deeper"));
  std::string laughs = "]";  // each list contains the previous one ten times
  for (int i = 0; i < 12; ++i) {
    laughs += "q\1](";
    for (int j = 0; j < 10; ++j) laughs += "h\1";
    laughs += "e";
  }
  EXPECT_THAT(refusal([&] { run(laughs + "."); }), HasSubstr("more than"));
  std::string shout =
      "]X" + std::string("\x40\x42\x0f\0", 4) + std::string(1'000'000, 'a') + "q\1a(";
  for (int i = 0; i < 100; ++i) shout += "h\1";  // a million characters, a hundred times
  EXPECT_THAT(refusal([&] { run(shout + "e."); }), HasSubstr("more than"));
}

TEST(Unpickler, BytesAreTheirOwn) {
  const std::string program =
      "c_codecs\nencode\n(X\3" + std::string("\0\0\0a\xc3\xa9", 6) + "U\6latin1tR.";
  EXPECT_EQ(*run(program).get_if<std::string>(), "a\xe9");
}

// A hostile pickle repeats calls of a few bytes that make large objects. Each is stopped at a
// harmless size. Time and memory are measured for whole files in file_test.cpp.
TEST(Unpickler, ObjectsAreBoundedByTheSizeOfThePickle) {
  const std::string many_pairs = [] {  // a list of 100,000 references to one pair, as number 2
    std::string out =
        "K\1K\1\x86q\1"
        "0](";
    for (int i = 0; i < 100'000; ++i) out += "h\1";
    return out + "eq\2";
  }();
  std::string dicts = "ccollections\nOrderedDict\nq\3" + many_pairs + "\x85q\4";
  for (int i = 0; i < 100'000; ++i) dicts += "h\3h\4R";
  EXPECT_THAT(refusal([&] { run(dicts + "."); }), HasSubstr("more than"));

  std::string empty = "(";
  empty += std::string(4'000'000, '}');
  EXPECT_THAT(refusal([&] { run(empty + "t."); }), HasSubstr("more than"));

  // One key of a million characters in many dictionaries.
  std::string keys = "X" + std::string("\x40\x42\x0f\0", 4) + std::string(1'000'000, 'a') + "q\1](";
  for (int i = 0; i < 1000; ++i) keys += "}h\1Ns";
  EXPECT_THAT(refusal([&] { run(keys + "e."); }), HasSubstr("more than"));

  // Parameters that are rebuilt from the type of a list. Each call used to copy the list.
  std::string copies =
      "ctorch._tensor\n_rebuild_from_type_v2\nq\3(ctorch._utils\n_rebuild_parameter\n"
      "ctorch\nTensor\n" +
      many_pairs + "\x85Ntq\4](";
  for (int i = 0; i < 10'000; ++i) copies += "h\3h\4R0";
  EXPECT_EQ(run(copies + "e.").get_if<StateList>()->size(), 0u);
}

TEST(Unpickler, ATensorHasNoMoreDimensionsThanPyTorchAllows) {
  std::string sizes, strides;
  for (int i = 0; i < 65; ++i) sizes += "K\1", strides += "K\1";
  EXPECT_THAT(refusal([&] { run(tensor_program("K\1", sizes, strides)); }),
              HasSubstr("65 dimensions"));
}

TEST(Unpickler, ExpandedTensorsAreBoundedTogether) {
  // One number repeated 2^26 times is allowed once, because a tensor of Python may be expanded.
  const std::string one =
      tensor_program("K\1", "J" + std::string("\0\0\0\4", 4), std::string("K\0", 2));
  EXPECT_NE(run(one).get_if<torch::Tensor>(), nullptr);
  const std::string tensor = one.substr(0, one.size() - 1);
  EXPECT_THAT(refusal([&] { run("](" + tensor + tensor + "e."); }), HasSubstr("bytes of tensors"));
  EXPECT_THAT(refusal([&] { run("](" + tensor + "q\1h\1e."); }), HasSubstr("bytes of tensors"));
}

TEST(Unpickler, AnythingCutShortIsRefused) {
  const std::string bytes = read_file(python("state_dict.pth"));
  for (std::size_t size = 0; size < bytes.size(); size += 37) {
    EXPECT_THROW(from_pickle(bytes.substr(0, size)), CheckpointError) << size;
  }
}

}  // namespace
}  // namespace lockstep::checkpoint

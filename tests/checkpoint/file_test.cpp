#include "lockstep/checkpoint/file.h"

#include <chrono>
#include <cstdlib>
#include <fstream>

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/checkpoint/pickle.h"
#include "lockstep/state/hash.h"
#include "tests/checkpoint/zip.h"
#include "tests/source/safetensors_files.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

StateDict small_state() {
  return {{"model_state_dict", StateDict{{"0.weight", torch::arange(12.0).reshape({3, 4})}}},
          {"epoch", 3}};
}

std::string error_of(const fs::path& path) {
  try {
    load(path);
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "";
}

TEST(CheckpointFile, ComesBackWhole) {
  TemporaryDirectory folder;
  save(folder / "a.pth", small_state());
  EXPECT_EQ(content_hash(load(folder / "a.pth")), content_hash(small_state()));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1)
      << "a temporary file was left";
}

TEST(CheckpointFile, EverySingleFlippedByteOfAWeightIsNoticed) {
  TemporaryDirectory folder;
  const fs::path path = folder / "a.pth";
  save(path, small_state());
  const std::string good = read_file(path);
  // The float32 bytes of 0, 1, 2, ... are stored unchanged in the file.
  const float one = 1.0f;
  const auto at = good.find(std::string(reinterpret_cast<const char*>(&one), sizeof one));
  ASSERT_NE(at, std::string::npos);
  for (std::size_t i = 0; i < sizeof one; ++i) {
    std::string bad = good;
    bad[at + i] ^= 1;
    std::ofstream(path, std::ios::binary) << bad;
    EXPECT_NE(error_of(path).find("damaged"), std::string::npos) << "byte " << i;
  }
}

TEST(CheckpointFile, AFileCutShortAnywhereIsRefusedByName) {
  TemporaryDirectory folder;
  const fs::path path = folder / "a.pth";
  save(path, small_state());
  const std::string good = read_file(path);
  for (std::size_t size = 0; size < good.size(); size += 37) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << good.substr(0, size);
    EXPECT_NE(error_of(path).find("a.pth"), std::string::npos) << "cut to " << size;
  }
}

TEST(CheckpointFile, AMissingOneIsNamed) {
  EXPECT_NE(error_of("no/such.pth").find("no/such.pth"), std::string::npos);
}

TEST(CheckpointFile, AFailedWriteLeavesTheOldOne) {
  TemporaryDirectory folder;
  const fs::path path = folder / "taken";
  fs::create_directory(path);
  EXPECT_THROW(save(path, small_state()), Error);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1)
      << "a temporary file was left";
}

TEST(CheckpointFile, PythonReadsIt) {
  if (std::system("/usr/bin/python3 -c 'import torch' 2>/dev/null") != 0) {
    GTEST_SKIP() << "Python cannot import torch; install python3-torch";
  }
  TemporaryDirectory folder;
  const fs::path path = folder / "a.pth";
  save(path, small_state());
  const std::string program =
      "import sys, torch\n"
      "state = torch.load(sys.argv[1])\n"
      "assert state['epoch'] == 3, state\n"
      "weight = state['model_state_dict']['0.weight']\n"
      "assert torch.equal(weight, torch.arange(12, dtype=weight.dtype).reshape(3, 4)), weight\n"
      "model = torch.nn.Sequential(torch.nn.Linear(4, 3, bias=False)).double()\n"
      "model.load_state_dict({k: v.double() for k, v in state['model_state_dict'].items()})\n";
  std::ofstream(folder / "read.py") << program;
  const std::string command =
      "/usr/bin/python3 " + (folder / "read.py").string() + " " + path.string();
  EXPECT_EQ(std::system(command.c_str()), 0);
}

// Version 0.1.0 wrote this file by LibTorch's own pickler.
TEST(CheckpointFile, OfAnOlderVersionIsRead) {
  const StateDict state = load(fs::path(LOCKSTEP_GOLDENS) / "checkpoints" / "lockstep-0.1.0.pth");
  EXPECT_EQ(state.get<StateDict>("run").get<int>("epoch"), 2);
  const auto weights = state.get<StateDict>("model_state_dict");
  EXPECT_EQ(weights.size(), 9u);
  EXPECT_EQ(weights.get<torch::Tensor>("0.weight").sizes(), (std::vector<std::int64_t>{3, 4}));
  EXPECT_EQ(weights.get<torch::Tensor>("1.num_batches_tracked").item<int>(), 8);
}

TEST(CheckpointFile, AChecksumOfAnotherKindIsNamed) {
  TemporaryDirectory folder;
  const fs::path path = folder / "a.pth";
  write_file_atomically(path, to_pickle({{"epoch", 3}, {kChecksumKey, 7}}));
  EXPECT_THAT(error_of(path), AllOf(HasSubstr(path.string()), HasSubstr("checksum: expected")));
}

TEST(CheckpointFile, ItsNameIsSaidOnce) {
  const std::string error = error_of("nope.pth");
  EXPECT_EQ(error.find("nope.pth"), error.rfind("nope.pth")) << error;
}

TEST(CheckpointFile, HostileNamesDoNotReachTheTerminal) {
  TemporaryDirectory folder;
  save(folder / "a.pth", {{"model", StateDict{{"\x1b[2J", 1}}}});
  try {
    load_weights(folder / "a.pth");
    FAIL();
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("\\x1b[2J"), Not(HasSubstr("\x1b"))));
  }
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSanitized = true;  // needs much more memory, and reserves terabytes
#else
constexpr bool kIsSanitized = false;
#endif

// The result of reading a file in a separate process.
struct Read {
  std::string error;
  double seconds = 0;
  long megabytes = 0;
};

long peak_kilobytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

Read read_apart(const fs::path& path) {
  int channel[2];
  if (::pipe(channel) != 0) return {.error = "no pipe"};
  const auto begin = std::chrono::steady_clock::now();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    const rlimit limit{.rlim_cur = 32ul << 30, .rlim_max = 32ul << 30};
    if (!kIsSanitized) ::setrlimit(RLIMIT_AS, &limit);
    at::set_num_threads(1);  // the parent's threads do not exist in the child
    const long before = peak_kilobytes();
    const std::string error = error_of(path);
    const std::string answer = std::to_string((peak_kilobytes() - before) / 1000) + " " + error;
    ::_exit(::write(channel[1], answer.data(), answer.size()) > 0 ? 0 : 1);
  }
  ::close(channel[1]);
  char buffer[4096];
  const ssize_t size = ::read(channel[0], buffer, sizeof buffer);
  ::close(channel[0]);
  ::waitpid(child, nullptr, 0);
  if (size <= 0) return {.error = "the child ended without an answer"};
  const std::string answer(buffer, static_cast<std::size_t>(size));
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  return {.error = answer.substr(answer.find(' ') + 1),
          .seconds = taken.count(),
          .megabytes = std::stol(answer)};
}

// A tensor that repeats one number `size` times.
std::string expanded(std::int32_t size) {
  std::string out = "ctorch._utils\n_rebuild_tensor_v2\n((U\7storagectorch\nFloatStorage\nU\1" +
                    std::string("0U\3cpuK\1tQK\0(J", 14);
  put(out, size);
  return out + std::string("t(K\0ttR", 7);
}

class Hostile : public testing::Test {
 protected:
  // The file is refused for `reason`, by name, quickly and with little memory. `value` is a piece
  // of a pickle.
  void expect_refused(const std::string& value, const std::string& reason) {
    expect_file_refused(zip({{.name = "archive/data.pkl", .content = "}U\1k" + value + "s."},
                             {.name = "archive/data/0", .content = std::string(4, '\0')}}),
                        reason);
  }
  void expect_file_refused(const std::string& bytes, const std::string& reason) {
    write_file_atomically(folder_ / "hostile.pth", bytes);
    const Read read = read_apart(folder_ / "hostile.pth");
    EXPECT_THAT(read.error, AllOf(HasSubstr("hostile.pth: "), HasSubstr(reason)));
    if (kIsSanitized) return;
    EXPECT_LT(read.seconds, 2);
    EXPECT_LT(read.megabytes, 400);
  }

  TemporaryDirectory folder_;
};

// 50 KB that needed gigabytes: a list of 20,000 that is "rebuilt from its type" 10,000 times.
TEST_F(Hostile, ManyCopiesOfOneList) {
  std::string value =
      "(ctorch._tensor\n_rebuild_from_type_v2\nq\3(ctorch._utils\n"
      "_rebuild_parameter\nctorch\nTensor\n](" +
      std::string(20'000, 'N') + "e\x85Ntq\4";
  for (int i = 0; i < 10'000; ++i) value += "h\3h\4R";
  expect_refused(value + "t", "more than");
}

TEST_F(Hostile, ManyCopiesOfOneDictionary) {
  std::string value = "(ccollections\nOrderedDict\nq\3K\1K\1\x86q\1](";
  for (int i = 0; i < 500'000; ++i) value += "h\1";
  value += "e\x85q\4";
  for (int i = 0; i < 200'000; ++i) value += "h\3h\4R";
  expect_refused(value + "t", "more than");
}

TEST_F(Hostile, ManyEmptyObjects) {
  expect_refused("(" + std::string(4'000'000, ']') + "t", "more than");
}

TEST_F(Hostile, ManyExpandedTensors) {
  std::string value = "(";
  for (int i = 0; i < 400; ++i) value += expanded(1 << 26);
  expect_refused(value + "t", "bytes of tensors");
}

// This is harmless, but it took quadratic time.
TEST_F(Hostile, ManyKeys) {
  std::string value = "}(";
  for (int i = 0; i < 300'000; ++i) {
    value += "X" + std::string("\6\0\0\0", 4) + std::to_string(100'000 + i) + "N";
  }
  expect_refused(value + "u", "carries no checksum");
}

// Calls of a few bytes that make nothing, but look through something large. Two megabytes took
// minutes.
std::string calls(int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += "h\3h\4R0";  // of function 3 with arguments 4
  return out;
}

TEST_F(Hostile, OneTextThatIsEncodedManyTimes) {
  std::string value = "(c_codecs\nencode\nq\3X";
  put(value, std::uint32_t{1'000'000});
  value += std::string(1'000'000, 'a') + "\x85q\4";
  expect_refused(value + calls(175'000) + "t", "more than");
}

TEST_F(Hostile, ManyTensorsWithOneLargeDictionaryOfNotes) {
  using namespace std::string_literals;
  const std::string tensor =
      "(ctorch._utils\n_rebuild_tensor_v2\nq\3((U\7storagectorch\nFloatStorage\nU\1"
      "0U\3cpuK\1tQK\0(K\1t(K\1t\x89N}("s;
  expect_refused(tensor + std::string(1'000'000, 'N') + "utq\4" + calls(100'000) + "t",
                 "more than");
}

TEST_F(Hostile, OneStorageOfALongNameThatIsReadManyTimes) {
  const std::string name(60'000, 'a');
  std::string program = "}U\1k((U\7storagectorch\nFloatStorage\nX";
  put(program, static_cast<std::uint32_t>(name.size()));
  program += name + "U\3cpuK\1tq\4";
  for (int i = 0; i < 500'000; ++i) program += "h\4Q0";
  expect_file_refused(zip({{.name = "archive/data.pkl", .content = program + "ts."},
                           {.name = "archive/data/" + name, .content = std::string(4, '\0')}}),
                      "more than");
}

TEST_F(Hostile, CompressedEntries) {
  expect_file_refused(zip({{.name = "a/data.pkl", .content = "x", .method = 8}}), "compressed");
}

TEST_F(Hostile, ManyEntriesOfTheSameBytes) {
  std::vector<ZipEntry> entries = {{.name = "a/data/0", .content = std::string(1 << 20, '\0')}};
  for (int i = 1; i < 10'000; ++i) {
    entries.push_back({.name = "a/data/" + std::to_string(i), .shares_first = true});
  }
  expect_file_refused(zip(entries), "overlap");
}

// A file that is larger than the memory of the machine; its blocks are not on the disk.
TEST_F(Hostile, AFileLargerThanMemory) {
  if (kIsSanitized) GTEST_SKIP() << "a sanitizer ends the process if memory is not enough";
  std::ofstream(folder_ / "hostile.pth") << "PK";
  std::error_code unsupported;
  fs::resize_file(folder_ / "hostile.pth", std::uintmax_t{1} << 43, unsupported);
  if (unsupported) GTEST_SKIP() << "this file system has no files of 8 TiB";
  const Read read = read_apart(folder_ / "hostile.pth");
  EXPECT_THAT(read.error, AllOf(HasSubstr("hostile.pth: "), HasSubstr("not enough memory")));
}

TEST(LoadWeights, NamesOfOurOwnStayAsTheyAre) {
  TemporaryDirectory folder;
  save(folder / "a.pth", {{"model_state_dict", StateDict{{"module.weight", torch::ones({2})}}}});
  EXPECT_TRUE(load_weights(folder / "a.pth").contains("module.weight"));
}

TEST(CheckpointFile, WeightsMayComeFromSafetensors) {
  TemporaryDirectory folder;
  write_file_atomically(folder / "a.safetensors", data::small_safetensors());
  const StateDict weights = load_weights(folder / "a.safetensors");
  EXPECT_THAT(weights.keys(), testing::ElementsAre("x", "y"));
  auto x = weights.get<torch::Tensor>("x");
  EXPECT_TRUE(x.equal(torch::arange(6, torch::kFloat32).view({2, 3})));
  x.add_(1);  // a view of the file could not be changed
  write_file_atomically(folder / "b.safetensors", "text");
  try {
    load_weights(folder / "b.safetensors");
    FAIL();
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), HasSubstr("b.safetensors"));
  }
}

}  // namespace
}  // namespace lockstep::checkpoint

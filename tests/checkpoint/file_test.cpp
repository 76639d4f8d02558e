#include "lockstep/checkpoint/file.h"

#include <cstdlib>
#include <fstream>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/state/hash.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

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
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1) << "something was left";
}

TEST(CheckpointFile, EverySingleFlippedByteOfAWeightIsNoticed) {
  TemporaryDirectory folder;
  const fs::path path = folder / "a.pth";
  save(path, small_state());
  const std::string good = read_file(path);
  // The float32 bytes of 0, 1, 2, ... are in the file as they are.
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
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1) << "something was left";
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

TEST(LoadWeights, NamesOfOurOwnStayAsTheyAre) {
  TemporaryDirectory folder;
  save(folder / "a.pth", {{"model_state_dict", StateDict{{"module.weight", torch::ones({2})}}}});
  EXPECT_TRUE(load_weights(folder / "a.pth").contains("module.weight"));
}

}  // namespace
}  // namespace lockstep::checkpoint

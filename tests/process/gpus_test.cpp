#include "lockstep/process/gpus.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep::process {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::size_t> visible(const std::string& list) {
  const std::vector<std::string> uuids = {"GPU-aa11-0", "GPU-aa22-1", "GPU-bb33-2"};
  return visible_devices(list, uuids);
}

TEST(VisibleDevices, AreTakenByNumber) {
  EXPECT_THAT(visible("0,1,2"), ElementsAre(0, 1, 2));
  EXPECT_THAT(visible("2,0"), ElementsAre(2, 0));
  EXPECT_THAT(visible(" 1, 2 "), ElementsAre(1, 2));
  EXPECT_THAT(visible("1st,+2"), ElementsAre(1, 2));
}

TEST(VisibleDevices, AreTakenByTheBeginningOfTheirUuid) {
  EXPECT_THAT(visible("GPU-bb33-2,GPU-aa1"), ElementsAre(2, 0));
  EXPECT_THAT(visible("GPU-b"), ElementsAre(2));
  EXPECT_THAT(visible("GPU-bb,GPU-aa"), ElementsAre(2));  // GPU-aa are two
}

TEST(VisibleDevices, EndBeforeAnEntryThatNamesNone) {
  EXPECT_THAT(visible(""), IsEmpty());
  EXPECT_THAT(visible("-1"), IsEmpty());
  EXPECT_THAT(visible("0,-1,1"), ElementsAre(0));
  EXPECT_THAT(visible("0,7,1"), ElementsAre(0));
  EXPECT_THAT(visible("1,GPU-aa11-0"), ElementsAre(1));
  EXPECT_THAT(visible("GPU-aa11-0,1"), ElementsAre(0));
  EXPECT_THAT(visible("NoDevFiles"), IsEmpty());
  EXPECT_THAT(visible("0,99999999999999999999"), ElementsAre(0));
}

TEST(VisibleDevices, AreNoneIfOneIsNamedTwice) {
  EXPECT_THAT(visible("0,1,0"), IsEmpty());
  EXPECT_THAT(visible("GPU-aa1,GPU-aa11"), IsEmpty());
}

// Sets a variable, or removes it, for as long as it lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    if (value != nullptr) {
      ::setenv(name, value, 1);
    } else {
      ::unsetenv(name);
    }
  }
  ~Variable() {
    if (before_) {
      ::setenv(name_, before_->c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

constexpr const char* kTwoAlike =
    "NVIDIA A100,GPU-aa11,42949672960;NVIDIA A100,GPU-bb22,42949672960";
const std::string kDriver = LOCKSTEP_FAKE_DRIVER;

class FindGpus : public testing::Test {
 protected:
  ~FindGpus() override { std::filesystem::remove(log_); }

  FoundGpus find() const { return find_gpus(search_); }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const Gpu& gpu : find().usable) names.push_back(gpu.name);
    return names;
  }
  // The processes that have started CUDA.
  std::vector<pid_t> starters() const {
    std::vector<pid_t> pids;
    std::ifstream file(log_);
    for (pid_t pid = 0; file >> pid;) pids.push_back(pid);
    return pids;
  }

  std::filesystem::path log_ =
      std::filesystem::temp_directory_path() / ("fake_cuda." + std::to_string(::getpid()));
  GpuSearch search_{.nvml = kDriver + "/libnvidia-ml.so.1",
                    .cuda = kDriver + "/libcuda.so.1",
                    .timeout = std::chrono::seconds(20)};
  Variable no_list_{"CUDA_VISIBLE_DEVICES", nullptr};
  Variable no_order_{"CUDA_DEVICE_ORDER", nullptr};
  Variable cuda_log_{"LOCKSTEP_FAKE_CUDA_LOG", log_.c_str()};
};

TEST_F(FindGpus, AsksNvml) {
  const Variable nvml("LOCKSTEP_FAKE_NVML", kTwoAlike);
  const FoundGpus found = find();
  ASSERT_EQ(found.usable.size(), 2U);
  EXPECT_EQ(found.usable[0].name, "NVIDIA A100");
  EXPECT_EQ(found.usable[1].uuid, "GPU-bb22");
  EXPECT_EQ(found.usable[1].memory, 42949672960U);
  EXPECT_EQ(found.why_none, "");
  EXPECT_THAT(starters(), IsEmpty());
}

TEST_F(FindGpus, AppliesTheListOfVisibleDevices) {
  const Variable nvml("LOCKSTEP_FAKE_NVML", kTwoAlike);
  const Variable list("CUDA_VISIBLE_DEVICES", "1");
  const FoundGpus found = find();
  ASSERT_EQ(found.usable.size(), 1U);
  EXPECT_EQ(found.usable[0].uuid, "GPU-bb22");
}

TEST_F(FindGpus, SaysThatTheListHidesAll) {
  const Variable nvml("LOCKSTEP_FAKE_NVML", kTwoAlike);
  for (const char* const list : {"", "-1", "5"}) {
    const Variable variable("CUDA_VISIBLE_DEVICES", list);
    const FoundGpus found = find();
    EXPECT_THAT(found.usable, IsEmpty());
    EXPECT_EQ(found.why_none, "CUDA_VISIBLE_DEVICES='" + std::string(list) +
                                  "' names none of the 2 of this machine");
  }
}

TEST_F(FindGpus, LeavesOutThoseThatThisProcessMayNotUse) {
  const Variable nvml("LOCKSTEP_FAKE_NVML", "A,GPU-1,1,hidden;A,GPU-2,0;A,GPU-3,1,hidden");
  const FoundGpus found = find();
  ASSERT_EQ(found.usable.size(), 1U);
  EXPECT_EQ(found.usable[0].uuid, "GPU-2");
  EXPECT_EQ(found.usable[0].memory, 0U);  // this one does not say
}

TEST_F(FindGpus, AsksCudaInAChildIfTheGpusAreOfSeveralKinds) {
  const Variable nvml("LOCKSTEP_FAKE_NVML", "Slow,GPU-1,1;Fast,GPU-2,1");
  const Variable cuda("LOCKSTEP_FAKE_CUDA", "Fast;Slow");
  EXPECT_THAT(names(), ElementsAre("Fast", "Slow"));
  ASSERT_EQ(starters().size(), 1U);
  EXPECT_NE(starters().front(), ::getpid());
  const Variable order("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
  EXPECT_THAT(names(), ElementsAre("Slow", "Fast"));
  EXPECT_EQ(starters().size(), 1U);
}

TEST_F(FindGpus, AsksCudaInAChildAboutDividedGpus) {
  const Variable cuda("LOCKSTEP_FAKE_CUDA", "A100 MIG 1g.5gb");
  {
    const Variable nvml("LOCKSTEP_FAKE_NVML", "A100,GPU-1,1,mig");
    EXPECT_THAT(names(), ElementsAre("A100 MIG 1g.5gb"));
  }
  const Variable nvml("LOCKSTEP_FAKE_NVML", kTwoAlike);
  const Variable list("CUDA_VISIBLE_DEVICES", "MIG-0123");
  EXPECT_THAT(names(), ElementsAre("A100 MIG 1g.5gb"));
}

TEST_F(FindGpus, AsksCudaInAChildIfNvmlIsMissingOrFails) {
  const Variable cuda("LOCKSTEP_FAKE_CUDA", "Orin");
  {
    const Variable nvml("LOCKSTEP_FAKE_NVML", "no driver");
    EXPECT_THAT(names(), ElementsAre("Orin"));
  }
  {
    const Variable nvml("LOCKSTEP_FAKE_NVML", "A,GPU-1,1,broken");
    EXPECT_THAT(names(), ElementsAre("Orin"));
  }
  search_.nvml = kDriver + "/not_there.so";
  const FoundGpus found = find();
  ASSERT_EQ(found.usable.size(), 1U);
  EXPECT_EQ(found.usable[0].uuid, "GPU-00000000-0000-0000-0000-000000000000");
  EXPECT_EQ(found.usable[0].memory, std::uint64_t{8} << 30);
  for (const pid_t pid : starters()) EXPECT_NE(pid, ::getpid());
}

TEST_F(FindGpus, SaysWhyThereIsNone) {
  {
    const Variable nvml("LOCKSTEP_FAKE_NVML", "");
    EXPECT_EQ(find().why_none, "the driver finds no GPU");
  }
  search_.nvml = kDriver + "/not_there.so";
  {
    const Variable cuda("LOCKSTEP_FAKE_CUDA", "");
    EXPECT_EQ(find().why_none, "CUDA finds no GPU");
  }
  {
    const Variable cuda("LOCKSTEP_FAKE_CUDA", "error");
    EXPECT_THAT(find().why_none, HasSubstr("cuInit: system has unsupported display driver"));
  }
  {
    const Variable cuda("LOCKSTEP_FAKE_CUDA", "crash");
    EXPECT_THAT(find().why_none, HasSubstr("killed by signal 6"));
  }
  {
    const Variable cuda("LOCKSTEP_FAKE_CUDA", "hang");
    search_.timeout = std::chrono::milliseconds(100);
    EXPECT_THAT(find().why_none, HasSubstr("the driver did not answer within 0.1 s"));
  }
  search_.cuda = kDriver + "/not_there_either.so";
  EXPECT_THAT(find().why_none,
              testing::AllOf(HasSubstr("no working NVIDIA driver"), HasSubstr("not_there.so"),
                             HasSubstr("not_there_either.so")));
}

TEST_F(FindGpus, NeedsADriverOfTheMajorVersionOfCuda) {
  const Variable cuda("LOCKSTEP_FAKE_CUDA", "Orin");
  const auto gpus = {kTwoAlike, "no driver"};  // the second one makes it ask CUDA itself
  search_.cuda_version = 12060;
  for (const char* const text : gpus) {
    const Variable nvml("LOCKSTEP_FAKE_NVML", text);
    for (const char* const enough : {"12000", "12060", "13020"}) {
      const Variable version("LOCKSTEP_FAKE_CUDA_VERSION", enough);
      EXPECT_FALSE(find().usable.empty()) << text << " " << enough;
    }
    const Variable version("LOCKSTEP_FAKE_CUDA_VERSION", "11080");
    const FoundGpus found = find();
    EXPECT_THAT(found.usable, IsEmpty());
    EXPECT_THAT(found.why_none, HasSubstr("the NVIDIA driver is too old: it is made for CUDA 11.8, "
                                          "and LibTorch was built with CUDA 12.6"));
  }
  const Variable nvml("LOCKSTEP_FAKE_NVML", kTwoAlike);
  EXPECT_EQ(find().usable.size(), 2U) << "the driver does not say its version";
}

// Whether a file with this name is loaded into this process.
bool has_loaded(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  std::stringstream text;
  text << maps.rdbuf();
  return text.str().find(name) != std::string::npos;
}

int exit_code_of(const std::function<bool()>& check) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(check() ? 0 : 1);
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WEXITSTATUS(status);
}

TEST_F(FindGpus, DoesNotStartCudaInThisProcessOrInOneThatItForks) {
  const Variable nvml("LOCKSTEP_FAKE_NVML", "Slow,GPU-1,1;Fast,GPU-2,1");
  const Variable cuda("LOCKSTEP_FAKE_CUDA", "Fast;Slow");
  EXPECT_EQ(find().usable.size(), 2U);
  const auto is_clean = [&] { return !has_loaded("libcuda.so") && !cuda_is_started(search_.cuda); };
  EXPECT_TRUE(is_clean());
  EXPECT_EQ(exit_code_of(is_clean), 0);
}

TEST_F(FindGpus, AsksCudaInThisProcessIfItRunsHereAlready) {
  const Variable nvml("LOCKSTEP_FAKE_NVML", "no driver");
  const Variable cuda("LOCKSTEP_FAKE_CUDA", "Orin");
  EXPECT_EQ(exit_code_of([&] {
              void* const library = ::dlopen(search_.cuda.c_str(), RTLD_NOW | RTLD_LOCAL);
              if (cuda_is_started(search_.cuda)) return false;  // loaded, not started
              const auto start = reinterpret_cast<int (*)(unsigned)>(::dlsym(library, "cuInit"));
              if (start(0) != 0 || !cuda_is_started(search_.cuda)) return false;
              if (find().usable.size() != 1) return false;
              for (const pid_t pid : starters()) {
                if (pid != ::getpid()) return false;
              }
              return true;
            }),
            0);
}

}  // namespace
}  // namespace lockstep::process

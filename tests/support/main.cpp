// The main function of every test program. It runs the tests as gtest_main does. It also appends a
// line to the file $LOCKSTEP_SKIPPED for every test that was skipped, so that scripts/test can say
// at the end what was not tested.
#include <cstdlib>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace {

// The reason given to GTEST_SKIP(), on one line.
std::string reason_of(const testing::TestResult& result) {
  for (int i = 0; i < result.total_part_count(); ++i) {
    const testing::TestPartResult& part = result.GetTestPartResult(i);
    if (!part.skipped()) continue;
    std::string reason = part.message();
    for (char& letter : reason) {
      if (letter == '\n') letter = ' ';
    }
    return reason.substr(0, reason.find_last_not_of(' ') + 1);
  }
  return "no reason was given";
}

class SkipRecorder : public testing::EmptyTestEventListener {
 public:
  SkipRecorder(std::string path, std::string program)
      : path_(std::move(path)), program_(std::move(program)), process_(::getpid()) {}

 private:
  void OnTestEnd(const testing::TestInfo& test) override {
    // A worker that a test forked shares the test, but its end is not the test's end.
    if (!test.result()->Skipped() || ::getpid() != process_) return;
    std::ofstream(path_, std::ios::app) << program_ + ": " + test.test_suite_name() + '.' +
                                               test.name() + ": " + reason_of(*test.result()) +
                                               '\n';
  }

  std::string path_;
  std::string program_;
  pid_t process_;
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  if (const char* path = std::getenv("LOCKSTEP_SKIPPED")) {
    const std::string program = argv[0];
    testing::UnitTest::GetInstance()->listeners().Append(
        new SkipRecorder(path, program.substr(program.rfind('/') + 1)));
  }
  return RUN_ALL_TESTS();
}

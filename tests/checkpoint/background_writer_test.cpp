#include "lockstep/checkpoint/background_writer.h"

#include <future>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/warn.h"

namespace lockstep::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(BackgroundWriter, WithoutAJobItIsFinished) {
  BackgroundWriter writer;
  EXPECT_TRUE(writer.finished());
  writer.wait();
}

TEST(BackgroundWriter, WritesWhileTheCallerGoesOn) {
  std::promise<void> allowed;
  std::string name;
  BackgroundWriter writer;
  writer.submit([&] {
    allowed.get_future().wait();
    char buffer[16];
    ::pthread_getname_np(::pthread_self(), buffer, sizeof buffer);
    name = buffer;
  });
  EXPECT_FALSE(writer.finished());
  allowed.set_value();
  writer.wait();
  EXPECT_TRUE(writer.finished());
  EXPECT_EQ(name, "lockstep save");
}

TEST(BackgroundWriter, RunsOneJobAfterTheOther) {
  std::vector<int> done;  // no lock: a job and its successor never run at the same time
  BackgroundWriter writer;
  for (int i = 0; i < 5; ++i) writer.submit([&done, i] { done.push_back(i); });
  writer.wait();
  EXPECT_THAT(done, ElementsAre(0, 1, 2, 3, 4));
}

TEST(BackgroundWriter, AnErrorIsThrownOnceByTheNextCall) {
  BackgroundWriter writer;
  writer.submit([] { throw CheckpointError("the disk is full"); });
  EXPECT_THROW(writer.wait(), CheckpointError);
  writer.wait();
  writer.submit([] { throw CheckpointError("the disk is full"); });
  bool ran = false;
  EXPECT_THROW(writer.submit([&] { ran = true; }), CheckpointError);
  writer.wait();
  EXPECT_FALSE(ran);
  writer.submit([&] { ran = true; });
  writer.wait();
  EXPECT_TRUE(ran);
}

TEST(BackgroundWriter, WhatAJobHoldsIsFreeAfterwards) {
  auto held = std::make_shared<int>(1);
  BackgroundWriter writer;
  writer.submit([held] {});
  writer.wait();
  EXPECT_EQ(held.use_count(), 1);
}

TEST(BackgroundWriter, TheDestructorWaitsAndWarns) {
  std::vector<std::string> warnings;
  const auto before =
      set_warning_handler([&](const std::string& text) { warnings.push_back(text); });
  bool ran = false;
  {
    BackgroundWriter writer;
    writer.submit([&] {
      ran = true;
      throw Error("the disk is full");
    });
  }
  set_warning_handler(before);
  EXPECT_TRUE(ran);
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("the disk is full")));
}

// After wait() nothing of the writer is left that a child could wait for.
TEST(BackgroundWriter, AProcessMayForkAfterWait) {
  auto writer = std::make_unique<BackgroundWriter>();
  writer->submit([] {});
  writer->wait();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::alarm(60);  // instead of waiting for ever
    int value = 0;
    writer->submit([&] { value = 3; });
    writer->wait();
    writer.reset();
    ::_exit(value);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 3);
}

}  // namespace
}  // namespace lockstep::checkpoint

#include "lockstep/process/memory_file.h"

#include <atomic>
#include <csignal>
#include <fstream>
#include <random>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/process/shared_memory.h"
#include "tests/support/rank_process.h"
#include "tests/support/slowdown.h"

namespace lockstep::process {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Environment handed_on(int descriptor) {
  return {{MemoryFile::kVariable, std::to_string(descriptor)}};
}

// Bytes that tell their sequence number and their size.
std::string point_of(std::uint64_t sequence, std::size_t size) {
  std::string bytes(size, '\0');
  std::minstd_rand random(static_cast<unsigned>(sequence + 1));
  const auto step = static_cast<std::size_t>(1 + random() % 97);
  for (std::size_t i = 0; i < size; i += step) bytes[i] = static_cast<char>(random());
  return bytes;
}

std::size_t bytes_used(const MemoryFile& memory) {
  struct stat status {};
  ::fstat(memory.descriptor(), &status);
  return static_cast<std::size_t>(status.st_blocks) * 512;
}

TEST(MemoryFile, GivesBackTheNewestPointOfEachRun) {
  MemoryFile memory;
  EXPECT_FALSE(memory.read(0));
  memory.write(0, 1, "first");
  memory.write(0, 2, "second");
  memory.write(0, 3, "third");
  memory.write(1, 1, "");
  EXPECT_EQ(memory.read(0)->sequence, 3u);
  EXPECT_EQ(memory.read(0)->bytes, "third");
  EXPECT_EQ(memory.read(1)->bytes, "");
  EXPECT_FALSE(memory.read(2));
  EXPECT_EQ(memory.points(), 4u);
}

TEST(MemoryFile, TakesPiecesAndGrows) {
  MemoryFile memory;
  const std::string_view pieces[] = {"ab", "", "cd"};
  memory.write(0, 1, pieces);
  EXPECT_EQ(memory.read(0)->bytes, "abcd");
  std::string whole;
  for (std::uint64_t sequence = 2; sequence < 12; ++sequence) {
    // Both places grow in turns, so each of them has to move.
    const std::string piece = point_of(sequence, 300'000 * sequence);
    whole.clear();
    memory.write(0, sequence, [&](const WriteBytes& write) {
      for (int i = 0; i < 3; ++i) {
        write(piece);
        whole += piece;
      }
    });
    ASSERT_EQ(memory.read(0)->sequence, sequence);
    ASSERT_TRUE(memory.read(0)->bytes == whole);
  }
  // What a place no longer uses is given back.
  EXPECT_LT(bytes_used(memory), 2 * whole.size() + 1'000'000);
}

// Free memory is looked at on the way, because no piece alone is large.
TEST(MemoryFile, TakesAPointOfManySmallPieces) {
  MemoryFile memory;
  const std::string piece = point_of(1, 1 << 20);
  for (const std::uint64_t sequence : {1, 2, 3}) {
    memory.write(0, sequence, [&](const WriteBytes& write) {
      for (int i = 0; i < 40; ++i) write(piece);
    });
  }
  const auto point = memory.read(0);
  ASSERT_TRUE(point);
  EXPECT_EQ(point->sequence, 3u);
  ASSERT_EQ(point->bytes.size(), 40 * piece.size());
  EXPECT_TRUE(std::string_view(point->bytes).ends_with(piece));
}

TEST(MemoryFile, RunsThatAreOverKeepOnePointOnly) {
  MemoryFile memory;
  constexpr std::size_t kSize = 4 << 20;
  for (int run = 0; run < 6; ++run) {
    memory.write(run, 1, point_of(1, kSize));
    memory.write(run, 2, point_of(2, kSize));
  }
  for (int run = 0; run < 6; ++run) EXPECT_TRUE(memory.read(run)->bytes == point_of(2, kSize));
  EXPECT_LT(bytes_used(memory), 8 * kSize);
}

TEST(MemoryFile, DamageIsNoticedAndTheOlderPointIsUsed) {
  MemoryFile memory;
  memory.write(0, 1, std::string(10'000, 'a'));
  memory.write(0, 2, std::string(10'000, 'b'));
  struct stat status {};
  ASSERT_EQ(::fstat(memory.descriptor(), &status), 0);
  // Every byte of the newest point is found by its content.
  std::string all(static_cast<std::size_t>(status.st_size), '\0');
  ASSERT_EQ(::pread(memory.descriptor(), all.data(), all.size(), 0), status.st_size);
  const std::size_t place = all.find(std::string(10'000, 'b'));
  ASSERT_NE(place, std::string::npos);
  ASSERT_EQ(::pwrite(memory.descriptor(), "x", 1, static_cast<off_t>(place + 7'000)), 1);
  EXPECT_EQ(memory.read(0)->sequence, 1u);
  EXPECT_EQ(memory.read(0)->bytes, std::string(10'000, 'a'));
  const std::size_t older = all.find(std::string(10'000, 'a'));
  ASSERT_EQ(::pwrite(memory.descriptor(), "x", 1, static_cast<off_t>(older)), 1);
  EXPECT_FALSE(memory.read(0));
}

// A writer is killed 200 times at a random moment. Afterwards there is always a whole point: the
// last one that the writer had finished, or the next one.
TEST(MemoryFile, AWriterThatIsKilledLeavesAWholePoint) {
  MemoryFile memory;
  const SharedMemory shared(sizeof(std::atomic<std::uint64_t>));
  auto& finished = *reinterpret_cast<std::atomic<std::uint64_t>*>(shared.data());
  std::mt19937 random(7);
  int kills = 0;
  for (int round = 0; round < 200; ++round) {
    const std::size_t largest = round % 2 == 0 ? 5'000 : 3'000'000;
    const std::uint64_t before = finished;
    RankProcess writer([&]() -> int {
      std::minstd_rand sizes(static_cast<unsigned>(round + 1));
      for (std::uint64_t sequence = finished + 1;; ++sequence) {
        const std::string bytes = point_of(sequence, 8 + sizes() % largest);
        if (sequence % 3 == 0) {
          memory.write(0, sequence, bytes);
        } else {
          memory.write(0, sequence, [&](const WriteBytes& write) {
            write(std::string_view(bytes).substr(0, bytes.size() / 2));
            write(std::string_view(bytes).substr(bytes.size() / 2));
          });
        }
        finished = sequence;
      }
    });
    ASSERT_TRUE(eventually([&] { return finished > before; }));
    // Not to wait for anything: the moment of death shall be another one each time.
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
    writer.send(SIGKILL);
    kills += writer.wait() == -SIGKILL ? 1 : 0;
    const auto point = memory.read(0);
    ASSERT_TRUE(point) << "round " << round;
    ASSERT_GE(point->sequence, finished);
    ASSERT_LE(point->sequence, finished + 1);
    ASSERT_TRUE(point->bytes == point_of(point->sequence, point->bytes.size()))
        << "round " << round;
    finished = point->sequence;
  }
  EXPECT_EQ(kills, 200);
  EXPECT_LT(bytes_used(memory), 3 * 3'000'000u + 1'000'000u);
}

TEST(MemoryFile, ALimitForFilesIsToldAndTheOlderPointStays) {
  MemoryFile memory;
  memory.write(0, 1, "older");
  RankProcess limited([&] {
    const rlimit limit{.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const std::string message =
        message_of<Error>([&] { memory.write(0, 2, std::string(4 << 20, 'x')); });
    if (message.find("ulimit -f") == std::string::npos) return 1;
    if (message.find("4.0 MiB") == std::string::npos) return 2;
    if (!memory.read(0) || memory.read(0)->bytes != "older") return 3;
    memory.write(0, 3, "newer");  // a smaller one still fits
    return 0;
  });
  EXPECT_EQ(limited.wait(), 0);
  EXPECT_EQ(memory.read(0)->bytes, "newer");
}

TEST(MemoryFile, LackOfMemoryIsToldAndTheOlderPointStays) {
  MemoryFile memory;
  memory.write(0, 1, "older");
  const std::string_view petabyte("", std::size_t{1} << 50);  // never read
  EXPECT_THAT(message_of<Error>([&] { memory.write(0, 2, petabyte); }),
              HasSubstr("the host has only"));
  EXPECT_EQ(memory.read(0)->bytes, "older");
}

TEST(MemoryFile, AnExceptionOfTheProducerLeavesTheOlderPoint) {
  MemoryFile memory;
  memory.write(0, 1, "older");
  EXPECT_THROW(memory.write(0, 2,
                            [](const WriteBytes& write) {
                              write("half of it");
                              throw DataError("no more");
                            }),
               DataError);
  EXPECT_EQ(memory.read(0)->bytes, "older");
  EXPECT_THROW(memory.write(MemoryFile::kMostRuns, 1, "x"), Error);
}

TEST(MemoryFile, IsInheritedByItsDescriptor) {
  MemoryFile memory;
  memory.write(0, 9, "the point");
  EXPECT_EQ(MemoryFile::inherited({}), nullptr);
  EXPECT_EQ(MemoryFile::inherited({{MemoryFile::kVariable, ""}}), nullptr);
  const int descriptor = ::dup(memory.descriptor());  // without close-on-exec, as after an exec
  const auto first = MemoryFile::inherited(handed_on(descriptor));
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->read(0)->bytes, "the point");
  EXPECT_TRUE(::fcntl(descriptor, F_GETFD) & FD_CLOEXEC) << "grandchildren would get it";
  const auto second = MemoryFile::inherited(handed_on(descriptor));
  second->write(0, 10, "a newer one");
  EXPECT_EQ(memory.read(0)->bytes, "a newer one");
  EXPECT_EQ(first->read(0)->bytes, "a newer one");
  ::close(descriptor);
}

TEST(MemoryFile, AnotherDescriptorIsRefused) {
  const auto refusal = [](const std::string& value) {
    return message_of<ConfigError>([&] {
      MemoryFile::inherited({{MemoryFile::kVariable, value}});
    });
  };
  EXPECT_THAT(refusal("x"), HasSubstr("LOCKSTEP_MEMORY"));
  EXPECT_THAT(refusal("x"), HasSubstr("not a number"));
  EXPECT_THAT(refusal("-1"), HasSubstr("got '-1'"));
  EXPECT_THAT(refusal("1000000"), HasSubstr("Bad file descriptor"));
  const FileDescriptor plain(::open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_THAT(refusal(std::to_string(plain.get())), HasSubstr("another file"));
  const FileDescriptor foreign(::memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_THAT(refusal(std::to_string(foreign.get())), HasSubstr("another file"));
  ASSERT_EQ(::ftruncate(foreign.get(), 10 << 20), 0);
  ASSERT_EQ(::fcntl(foreign.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_THAT(refusal(std::to_string(foreign.get())), HasSubstr("another file in memory"));
}

TEST(MemoryFile, NoProcessCanShrinkIt) {
  MemoryFile memory;
  EXPECT_NE(::ftruncate(memory.descriptor(), 0), 0);
}

TEST(MemoryFile, KeepsNotesOfFailures) {
  MemoryFile memory;
  EXPECT_TRUE(memory.failures().empty());
  const auto start = std::chrono::steady_clock::now();
  memory.note_failure({.attempt = 1,
                       .rank = 3,
                       .kind = FailureKind::kOutOfMemory,
                       .epoch = 2,
                       .batch = 17,
                       .reason = "not enough memory"});
  memory.note_failure(
      {.attempt = 2, .rank = 0, .kind = FailureKind::kHang, .reason = std::string(5000, 'r')});
  const auto notes = memory.failures();
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_EQ(notes[0].attempt, 1);
  EXPECT_EQ(notes[0].rank, 3);
  EXPECT_EQ(notes[0].kind, FailureKind::kOutOfMemory);
  EXPECT_EQ(notes[0].epoch, 2);
  EXPECT_EQ(notes[0].batch, 17);
  EXPECT_EQ(notes[0].reason, "not enough memory");
  EXPECT_GE(notes[0].time, start);
  EXPECT_EQ(notes[1].reason.size(), MemoryFile::kLongestReason);
  EXPECT_EQ(notes[1].batch, -1);
}

TEST(MemoryFile, SeveralProcessesMayNoteAtTheSameTime) {
  MemoryFile memory;
  constexpr int kEach = 20;
  std::vector<RankProcess> ranks;
  for (int rank = 0; rank < 6; ++rank) {
    ranks.emplace_back([&memory, rank] {
      for (int i = 0; i < kEach; ++i) {
        memory.note_failure({.attempt = i,
                             .rank = rank,
                             .reason = std::string(500, static_cast<char>('a' + rank))});
      }
      return 0;
    });
  }
  for (RankProcess& rank : ranks) EXPECT_EQ(rank.wait(), 0);
  std::vector<int> counts(6);
  for (const FailureNote& note : memory.failures()) {
    EXPECT_EQ(note.attempt, counts[static_cast<std::size_t>(note.rank)]++);
    EXPECT_EQ(note.reason, std::string(500, static_cast<char>('a' + note.rank)));
  }
  EXPECT_THAT(counts, ElementsAre(kEach, kEach, kEach, kEach, kEach, kEach));
}

TEST(MemoryFile, TheNewestNotesAreKept) {
  MemoryFile memory;
  for (int i = 0; i < 300; ++i) memory.note_failure({.attempt = i});
  const auto notes = memory.failures();
  ASSERT_EQ(notes.size(), MemoryFile::kMostNotes);
  EXPECT_EQ(notes.front().attempt, 300 - static_cast<int>(MemoryFile::kMostNotes));
  EXPECT_EQ(notes.back().attempt, 299);
}

TEST(MemoryFile, TellsTheAttempt) {
  MemoryFile memory;
  EXPECT_EQ(memory.attempt(), 0);
  const auto failed = std::chrono::steady_clock::now();
  const auto began = failed + std::chrono::milliseconds(250);
  memory.begin_attempt({.attempt = 3, .began = began, .failed = failed});
  const AttemptStart start = memory.attempt_start();
  EXPECT_EQ(start.attempt, 3);
  EXPECT_EQ(start.began, began);
  EXPECT_EQ(start.failed, failed);
  memory.begin_attempt({.attempt = 4, .began = began});
  EXPECT_FALSE(memory.attempt_start().failed);
}

}  // namespace
}  // namespace lockstep::process

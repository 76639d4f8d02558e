// Gives damaged files to a reader in another process, because a library that it calls may crash.
#pragma once

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "tests/support/damage.h"
#include "tests/support/rank_process.h"

namespace lockstep {

struct DamagedReads {
  int refused = 0;  // by a Refusal that names the file
  int crashed = 0;  // the process ended
};

namespace damaged {

inline constexpr char kRead = 'o';
inline constexpr char kRefused = 'r';
inline constexpr char kFailed = 'x';
inline constexpr char kCrashed = 'c';

template <typename Refusal, typename Read>
char outcome_of(const std::filesystem::path& path, const Read& read) {
  std::string problem;
  try {
    read(path);
    return kRead;
  } catch (const Refusal& error) {
    const std::string_view text = error.what();
    if (text.find(path.string()) != std::string_view::npos) return kRefused;
    problem = fmt::format("does not name the file: {}", text);
  } catch (const std::exception& error) {
    problem = fmt::format("another error than expected: {}", error.what());
  }
  std::fprintf(stderr, "%s: %s\n", path.c_str(), problem.c_str());
  return kFailed;
}

}  // namespace damaged

// Calls read(path) with damaged variants of `good`, each in a file of its own in `folder`, because
// a library may remember a file by its name or number. read() has to return or to throw a Refusal
// that names the file. A crash ends the process and is counted; the next process goes on with the
// next file.
template <typename Refusal = Error, typename Read>
DamagedReads refused_in_another_process(const std::string& good,
                                        const std::filesystem::path& folder, const Read& read) {
  // A process has to end within kLimit.
  constexpr int kFilesOfProcess = 50;
  const std::filesystem::path file = folder / "outcomes";  // a letter for each damaged file
  const auto add = [&](char outcome) { std::ofstream(file, std::ios::app) << outcome; };
  const auto name = [](int round) { return fmt::format("damaged_{}", round); };
  std::string outcomes;
  while (static_cast<int>(outcomes.size()) < damaged_files()) {
    const int first = static_cast<int>(outcomes.size());
    RankProcess process([&] {
      const MemoryLimit limit(kMemoryForDamaged);
      for (int round = first; round < std::min(first + kFilesOfProcess, damaged_files()); ++round) {
        std::ofstream(folder / name(round), std::ios::binary) << damage(good, round);
        add(damaged::outcome_of<Refusal>(folder / name(round), read));
      }
      return 0;
    });
    const int code = process.wait();
    if (code != 0) {
      add(damaged::kCrashed);
      std::printf("damage(…, %ju): the process ended with %d\n",
                  std::filesystem::file_size(file) - 1, code);
    }
    outcomes = read_file(file);
  }
  const auto count = [&](char outcome) {
    return static_cast<int>(std::ranges::count(outcomes, outcome));
  };
  EXPECT_EQ(count(damaged::kFailed), 0) << "see the messages above";
  return {.refused = count(damaged::kRefused), .crashed = count(damaged::kCrashed)};
}

}  // namespace lockstep

#include "lockstep/launcher/restarts.h"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep::launcher {
namespace {

using process::FailureKind;

// Exit codes that mean the same for every program: see docs/decisions/launcher.md.
constexpr int kWrongUsage = 2;
constexpr int kAnotherFailed = 3;
constexpr int kCannotBeExecuted = 126;
constexpr int kNoSuchProgram = 127;

bool will_fail_again(int shell_code) {
  return shell_code == kWrongUsage || shell_code == kCannotBeExecuted ||
         shell_code == kNoSuchProgram;
}

// Whether the rank ended by itself, with a failure.
bool failed(const RankEnd& rank) {
  return !rank.stopped && !rank.end.ok();
}

const RankEnd* end_of(int rank, const ProgramsEnd& ended) {
  const auto found = std::ranges::find(ended.ranks, rank, &RankEnd::rank);
  return found == ended.ranks.end() ? nullptr : &*found;
}

Blame blame_for(const RankEnd& rank) {
  if (rank.end.signal != 0 || will_fail_again(rank.end.exit_code)) return Blame::kCertain;
  return rank.end.exit_code == kAnotherFailed ? Blame::kConsequence : Blame::kLikely;
}

process::FailurePlace to_place(const AttemptFailure& failure) {
  return {.kind = failure.kind, .epoch = failure.epoch, .batch = failure.batch};
}

std::string place_of(const AttemptFailure& failure) {
  if (failure.epoch < 0) return "";
  if (failure.batch < 0) return fmt::format(" (epoch {})", failure.epoch);
  return fmt::format(" (epoch {}, batch {})", failure.epoch, failure.batch);
}

}  // namespace

std::string to_string(const AttemptFailure& failure) {
  if (failure.rank < 0) return failure.how;
  return fmt::format("rank {}{}: {}", failure.rank, place_of(failure), failure.how);
}

std::optional<AttemptFailure> find_cause(int attempt, const ProgramsEnd& ended,
                                         const std::vector<process::FailureNote>& notes) {
  const bool all_well = std::ranges::all_of(
      ended.ranks, [](const RankEnd& rank) { return !rank.stopped && rank.end.ok(); });
  if (all_well) return std::nullopt;

  // What the program's exit code would be without any note.
  const RankEnd* first = ended.first_failure ? &ended.ranks[*ended.first_failure] : nullptr;
  for (const RankEnd& rank : ended.ranks) {
    if (!failed(rank)) continue;
    if (first == nullptr || blame_for(rank) > blame_for(*first) ||
        (blame_for(rank) == blame_for(*first) && rank.time < first->time)) {
      first = &rank;
    }
  }

  // A program may catch the error of a wrong option and go on. If it is killed later, its note is
  // not the cause.
  const auto is_cause = [&](const process::FailureNote& note) {
    if (note.attempt != attempt) return false;
    const RankEnd* const noted = end_of(note.rank, ended);
    return note.kind != FailureKind::kConfig || noted == nullptr || noted->stopped ||
           noted->end.signal == 0;
  };
  // The first note of this attempt is the cause, unless a rank was killed before.
  const auto note = std::ranges::find_if(notes, is_cause);
  const bool killed_before = first != nullptr && first->end.signal != 0 && note != notes.end() &&
                             first->rank != note->rank && first->time < note->time;
  if (note != notes.end() && !killed_before) {
    const RankEnd* const blamed = end_of(note->rank, ended);
    const RankEnd* const coded = blamed != nullptr && failed(*blamed) ? blamed : first;
    return AttemptFailure{.attempt = attempt,
                          .rank = note->rank,
                          .kind = note->kind,
                          .epoch = note->epoch,
                          .batch = note->batch,
                          .shell_code = coded != nullptr ? coded->end.shell_code() : 1,
                          .blame = Blame::kCertain,
                          .how = note->reason};
  }
  const auto suspended = std::ranges::find(ended.ranks, true, &RankEnd::suspended);
  if (suspended != ended.ranks.end() &&
      (first == nullptr || blame_for(*first) != Blame::kCertain)) {
    return AttemptFailure{.attempt = attempt,
                          .rank = suspended->rank,
                          .kind = FailureKind::kHang,
                          .shell_code = first != nullptr ? first->end.shell_code() : 1,
                          .blame = Blame::kCertain,
                          .how = "a signal had stopped it (SIGSTOP or Ctrl-Z)"};
  }
  if (first == nullptr) return std::nullopt;
  return AttemptFailure{.attempt = attempt,
                        .rank = first->rank,
                        .kind = FailureKind::kLost,
                        .shell_code = first->end.shell_code(),
                        .blame = blame_for(*first),
                        .how = to_string(first->end)};
}

RestartDecision decide_restart(const std::vector<AttemptFailure>& failures, int max_restarts) {
  const AttemptFailure& last = failures.back();
  if (last.kind == FailureKind::kConfig) {
    return {.why_not = "a wrong option would be wrong again"};
  }
  // A rank that noted another failure may have any exit code.
  if (last.kind == FailureKind::kLost && will_fail_again(last.shell_code)) {
    return {.why_not = fmt::format(
                "exit code {} means {}, which another attempt does not change", last.shell_code,
                last.shell_code == kWrongUsage ? "a wrong option"
                                               : "that the program cannot be started")};
  }
  const bool again = std::any_of(failures.begin(), failures.end() - 1, [&](const auto& earlier) {
    return is_repetition(to_place(earlier), to_place(last));
  });
  if (again) {
    const bool no_memory = last.kind == FailureKind::kOutOfMemory;
    return {.why_not = fmt::format("{} came at the same place twice",
                                   no_memory ? "out of memory" : "an exception")};
  }
  if (static_cast<int>(failures.size()) > max_restarts) {
    return {.why_not = fmt::format("no restart is left of --max-restarts {}", max_restarts)};
  }
  return {.restart = true, .wait = process::restart_backoff(static_cast<int>(failures.size()))};
}

}  // namespace lockstep::launcher

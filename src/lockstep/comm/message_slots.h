// The layout of the memory through which ranks of one host send each other messages.
#pragma once

#include <cstddef>

#include "lockstep/process/host_group.h"

namespace lockstep::comm {

// Each rank has two slots that it uses in turns: a rank can be one meeting ahead of another, never
// two, so that one meeting per exchange is enough. It uses the group's memory and must not outlive
// the group.
class MessageSlots {
 public:
  static constexpr std::size_t kSlotBytes = process::HostGroup::kMessageBytes / 2;

  explicit MessageSlots(const process::HostGroup& host_group);

  // A rank's slot. `turn` is 0 or 1.
  std::byte* slot(int rank, int turn) const;
  // One for all ranks.
  std::byte* results(int turn) const { return slot(size_, turn); }

 private:
  std::byte* memory_;
  int size_;
};

}  // namespace lockstep::comm

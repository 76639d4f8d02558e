// The layout of the memory through which ranks of one host send each other messages.
#pragma once

#include <cstddef>

#include "lockstep/process/host_group.h"

namespace lockstep::comm {

// Each rank has two slots that it uses alternately. A rank can be one barrier ahead of another rank
// but never two, so one barrier per exchange is enough. MessageSlots uses the group's memory and
// must not outlive the group.
class MessageSlots {
 public:
  static constexpr std::size_t kSlotBytes = process::HostGroup::kMessageBytes / 2;

  explicit MessageSlots(const process::HostGroup& host_group);

  // A rank's slot. `turn` is 0 or 1.
  std::byte* slot(int rank, int turn) const;
  // A slot that all ranks write their parts of a result to.
  std::byte* results(int turn) const { return slot(size_, turn); }

 private:
  std::byte* memory_;
  int size_;
};

}  // namespace lockstep::comm

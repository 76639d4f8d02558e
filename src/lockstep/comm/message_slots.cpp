#include "lockstep/comm/message_slots.h"

namespace lockstep::comm {

MessageSlots::MessageSlots(const process::HostGroup& host_group)
    : memory_(host_group.messages()), size_(host_group.size()) {}

std::byte* MessageSlots::slot(int rank, int turn) const {
  return memory_ +
         (2 * static_cast<std::size_t>(rank) + static_cast<std::size_t>(turn)) * kSlotBytes;
}

}  // namespace lockstep::comm

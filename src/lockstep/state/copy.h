// Deep copies of a state. The run goes on and changes its tensors; the copy stays as it is, so that
// a thread can write it to a file, or a run can return to it.
#pragma once

#include "lockstep/state/state_dict.h"

namespace lockstep {

// A copy of the tree in which every tensor has memory of its own: on the CPU, in row-major order
// and without gradients, as a checkpoint stores it. Tensors that are the same numbers in memory
// (tied weights) are copied once and share their memory in the copy, too.
//
// `reuse` is an older copy, which is empty afterwards. Its tensors' memory is used again where type
// and number of elements are the same, unless something else holds that memory. This makes the copy
// as fast as memcpy: new memory has to be mapped and cleared by the kernel first, which takes
// longer than the copying.
StateDict copied(const StateDict& source, StateDict* reuse = nullptr);

// Memory for copied(source, &memory), already mapped, so that the first copy is as fast as later
// ones. Only types and sizes of the tensors are read, so the run may go on meanwhile if this is
// called in another thread. No other threads are used.
StateDict memory_for_copy(const StateDict& source);

}  // namespace lockstep

// LibTorch's own threads, in a thread that makes batches.
#pragma once

namespace lockstep::data {

// In the calling thread, LibTorch's operations use this thread alone from now on. Other threads
// keep their setting.
void use_one_torch_thread();

}  // namespace lockstep::data

#include "lockstep/data/torch_threads.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

namespace lockstep::data {

void use_one_torch_thread() {
  // LibTorch sets the number for a new thread at its first use. It would overwrite ours.
  at::get_num_threads();
  at::internal::lazy_init_num_threads();
  // torch::set_num_threads would change the number for threads that start later, too. OpenMP keeps
  // one number per thread. Its library is looked up at run time, because it must be the one that
  // LibTorch uses.
  using SetThreads = void (*)(int);
  static const auto set_threads =
      reinterpret_cast<SetThreads>(::dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set_threads != nullptr) set_threads(1);
}

}  // namespace lockstep::data

// A library for LD_PRELOAD: the criterion of a training program throws when lockstep_chaos asks for
// it. So the programs need no code for this test. It replaces the functions of LibTorch that the
// examples' criterions call, and passes every call on to LibTorch.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <stdexcept>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/chaos/throw_page.h"

namespace {

using lockstep::chaos::ThrowPage;

// Mapped before main(), so that forked processes share it. There is no object that could hold it:
// LibTorch's functions are replaced for the whole process.
ThrowPage* page = nullptr;

[[gnu::constructor]] void map_page() {
  const char* const path = std::getenv(lockstep::chaos::kThrowPageVariable);
  if (path == nullptr) return;
  const int file = ::open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return;
  void* const memory =
      ::mmap(nullptr, sizeof(ThrowPage), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (memory != MAP_FAILED) page = static_cast<ThrowPage*>(memory);
}

void throw_if_asked() {
  if (page == nullptr) return;
  std::int32_t pid = page->pid.load();
  if (pid == ThrowPage::kNobody) return;
  if (pid != ThrowPage::kEverybody) {
    if (pid != ::getpid() || !page->pid.compare_exchange_strong(pid, ThrowPage::kNobody)) return;
  }
  page->thrown.fetch_add(1);
  if (page->lacks_memory.load() != 0) throw std::bad_alloc();
  throw std::runtime_error(lockstep::chaos::kThrownText);
}

template <typename Function>
Function* next(const char* name) {
  void* const found = ::dlsym(RTLD_NEXT, name);
  if (found == nullptr) {
    std::fprintf(stderr, "chaos: LibTorch has no %s\n", name);
    std::abort();
  }
  return reinterpret_cast<Function*>(found);
}

}  // namespace

namespace lockstep::chaos {

// Stands for at::Tensor, which is returned in memory of the caller because it has a destructor.
struct ReturnedTensor {
  ReturnedTensor(const ReturnedTensor&);
  ~ReturnedTensor();
  void* implementation;
};

// torch::nn::CrossEntropyLossImpl::forward(const Tensor&, const Tensor&), for mnist.
#define CROSS_ENTROPY "_ZN5torch2nn20CrossEntropyLossImpl7forwardERKN2at6TensorES5_"
// at::_ops::binary_cross_entropy_with_logits::call(const Tensor&, const Tensor&, const
// optional<Tensor>&, const optional<Tensor>&, int64_t), for gan. The optional is c10's up to
// LibTorch 2.3, and std's later.
#define BINARY_CROSS_ENTROPY "_ZN2at4_ops32binary_cross_entropy_with_logits4callERKNS_6TensorES4_"
#define BINARY_CROSS_ENTROPY_C10 BINARY_CROSS_ENTROPY "RKN3c108optionalIS2_EES9_l"
#define BINARY_CROSS_ENTROPY_STD BINARY_CROSS_ENTROPY "RKSt8optionalIS2_ES8_l"

using CrossEntropy = ReturnedTensor(void* self, const void* input, const void* target);
using BinaryCrossEntropy = ReturnedTensor(const void* input, const void* target, const void* weight,
                                          const void* positive_weight, std::int64_t reduction);

ReturnedTensor cross_entropy(void* self, const void* input, const void* target) asm(CROSS_ENTROPY);
ReturnedTensor cross_entropy(void* self, const void* input, const void* target) {
  throw_if_asked();
  static CrossEntropy* const real = next<CrossEntropy>(CROSS_ENTROPY);
  return real(self, input, target);
}

ReturnedTensor binary_cross_entropy_c10(const void* input, const void* target, const void* weight,
                                        const void* positive_weight,
                                        std::int64_t reduction) asm(BINARY_CROSS_ENTROPY_C10);
ReturnedTensor binary_cross_entropy_c10(const void* input, const void* target, const void* weight,
                                        const void* positive_weight, std::int64_t reduction) {
  throw_if_asked();
  static BinaryCrossEntropy* const real = next<BinaryCrossEntropy>(BINARY_CROSS_ENTROPY_C10);
  return real(input, target, weight, positive_weight, reduction);
}

ReturnedTensor binary_cross_entropy_std(const void* input, const void* target, const void* weight,
                                        const void* positive_weight,
                                        std::int64_t reduction) asm(BINARY_CROSS_ENTROPY_STD);
ReturnedTensor binary_cross_entropy_std(const void* input, const void* target, const void* weight,
                                        const void* positive_weight, std::int64_t reduction) {
  throw_if_asked();
  static BinaryCrossEntropy* const real = next<BinaryCrossEntropy>(BINARY_CROSS_ENTROPY_STD);
  return real(input, target, weight, positive_weight, reduction);
}

}  // namespace lockstep::chaos

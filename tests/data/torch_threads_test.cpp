#include "lockstep/data/torch_threads.h"

#include <thread>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

namespace lockstep::data {
namespace {

TEST(UseOneTorchThread, ChangesTheCallingThreadOnly) {
  const int before = at::get_num_threads();
  at::set_num_threads(3);
  int limited = 0;
  std::thread([&] {
    use_one_torch_thread();
    at::parallel_for(0, 10, 1, [](std::int64_t, std::int64_t) {});
    limited = at::get_num_threads();
  }).join();
  int other = 0;
  std::thread([&] { other = at::get_num_threads(); }).join();
  EXPECT_EQ(limited, 1);
  EXPECT_EQ(other, 3) << "a thread that starts later";
  EXPECT_EQ(at::get_num_threads(), 3);
  at::set_num_threads(before);
}

}  // namespace
}  // namespace lockstep::data

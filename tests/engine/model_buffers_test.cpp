#include "lockstep/engine/model_buffers.h"

#include <gtest/gtest.h>

#include "lockstep/comm/local.h"
#include "lockstep/comm/shared.h"
#include "lockstep/compute/autograd_probe.h"
#include "tests/support/ranks.h"

namespace lockstep {
namespace {

// Each of four shards adds its number to a running sum, twice. Then all continue with the sum of
// the first shard.
void run(comm::Communicator& comm, bool ranks_meet) {
  torch::Tensor sum = torch::full({2}, comm.is_primary() ? 10.0 : 99.0);
  torch::Tensor count = torch::zeros({}, torch::kInt64);
  ModelBuffers buffers({{"sum", sum}, {"count", count}}, comm,
                       {.shards = 4, .ranks_meet = ranks_meet});
  buffers.broadcast();
  EXPECT_EQ(sum[0].item<double>(), 10.0) << "rank 0's";
  const auto range = comm::leaves_of({.rank = comm.rank(), .size = comm.size()}, 4);
  for (int batch = 0; batch < 2; ++batch) {
    for (int local = 0; local < range.count(); ++local) {
      buffers.begin_shard(local);
      sum.add_(range.begin + local + 1);
      count.add_(1);
      buffers.end_shard(local);
    }
  }
  buffers.publish();
  if (ranks_meet) comm.synchronize();
  buffers.take();
  EXPECT_EQ(sum[1].item<double>(), 12.0);
  EXPECT_EQ(count.item<std::int64_t>(), 2);
  comm.synchronize();

  // Between two updates: the earlier values of a shard do not undo a change by the user.
  for (int local = 0; local < range.count(); ++local) {
    buffers.begin_shard(local);
    sum.add_(range.begin + local + 1);
    buffers.end_shard(local);
  }
  buffers.settle();
  EXPECT_EQ(sum[0].item<double>(), 13.0) << "the first shard's";
  if (comm.is_primary()) sum.fill_(50);
  buffers.broadcast();
  buffers.begin_shard(range.count() - 1);
  EXPECT_EQ(sum[1].item<double>(), 50.0);
}

TEST(ModelBuffers, AllShardsGoOnWithTheFirstOnes) {
  comm::Local alone;
  run(alone, true);
  for (const int size : {2, 3, 4}) {
    run_ranks({.size = size, .probe = compute::autograd_works}, [](process::HostGroup& host_group) {
      comm::Shared comm(host_group);
      for (const bool ranks_meet : {true, false}) run(comm, ranks_meet);
    });
  }
}

}  // namespace
}  // namespace lockstep

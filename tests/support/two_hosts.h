// Training by two processes that stand for two hosts, which meet at a port of this machine.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include <gtest/gtest.h>
#include <sys/wait.h>

#include "lockstep/engine/distributed.h"
#include "tests/comm/free_port.h"
#include "tests/support/torch_fork.h"
#include "tests/support/toy.h"

namespace lockstep {

// The engine of host 0 or 1, made of the options that both have, with workers and port.
inline std::shared_ptr<Engine> engine_of_host(int host, DistributedDataParallelOptions common) {
  common.world_size = 2 * common.workers.value();
  common.first_rank = host * common.workers.value();
  common.token = "ours";
  common.timeout = std::chrono::seconds(30);
  return std::make_shared<DistributedDataParallelEngine>(common);
}

// Expects that work(0), in this process, and work(1), in another one at the same time, return true.
inline void expect_on_two_hosts(const std::function<bool(int host)>& work) {
  const pid_t other = start_process([&] { return work(1) ? 0 : 2; });
  ASSERT_GE(other, 0);
  EXPECT_TRUE(work(0));
  int status = 0;
  ASSERT_EQ(waitpid(other, &status, 0), other);
  EXPECT_EQ(status, 0);
}

// Expects that both hosts train to the bits of `alone`. The engine of the options is replaced.
inline void expect_same_bits_on_two_hosts(
    const TrainResult& alone, DistributedDataParallelOptions common,
    const std::function<TrainOptions(int host)>& options_of_host) {
  common.port = comm::free_port();
  expect_on_two_hosts([&](int host) {
    TrainOptions options = options_of_host(host);
    options.engine = engine_of_host(host, common);
    const TrainResult result = toy::train(options);
    if (host == 0) {
      EXPECT_EQ(result.history, alone.history);
    }
    return result.weights_hash == alone.weights_hash;
  });
}

}  // namespace lockstep

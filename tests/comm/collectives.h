// Checks that every kind of communicator must pass, on any number of ranks. Every rank calls them.
#pragma once

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/communicator.h"
#include "tests/comm/numbers.h"

namespace lockstep::comm {

inline torch::Tensor of_rank(int rank, std::int64_t count, torch::ScalarType type) {
  return random_tensor(static_cast<std::uint64_t>(rank), count, type);
}

// No element, a few, about as many as fit into a slot, and several slots with a rest.
inline const std::vector<std::int64_t> kCounts = {0, 1, 5, 4099, 131'072, 400'003};

inline void check_all_reduce(Communicator& comm) {
  for (const auto type : kAllTypes) {
    for (const ReduceOp op : kAllOps) {
      const torch::Tensor tensor = of_rank(comm.rank(), 1003, type);
      comm.all_reduce(tensor, op);
      const auto right = reduced_by_one(random_tensors(comm.size(), 1003, type), op);
      ASSERT_TRUE(same_bits(tensor, right))
          << c10::toString(type) << ", operation " << static_cast<int>(op);
    }
  }
  for (const auto type : {torch::kFloat32, torch::kBFloat16}) {
    for (const std::int64_t count : kCounts) {
      const torch::Tensor tensor = of_rank(comm.rank(), count, type);
      comm.all_reduce(tensor, ReduceOp::kMean);
      ASSERT_TRUE(same_bits(
          tensor, reduced_by_one(random_tensors(comm.size(), count, type), ReduceOp::kMean)))
          << count;
    }
  }
  EXPECT_THROW(comm.all_reduce(torch::ones({2}, torch::kInt64), ReduceOp::kMean), ConfigError);
  EXPECT_THROW(comm.all_reduce(torch::Tensor()), CommError);
}

inline void check_layouts(Communicator& comm) {
  // Not contiguous, as a view of something larger, and a leaf of autograd.
  const torch::Tensor whole = of_rank(comm.rank(), 600, torch::kFloat32).view({20, 30});
  const torch::Tensor before = whole.clone();
  const torch::Tensor right =
      reduced_by_one(random_tensors(comm.size(), 600, torch::kFloat32), ReduceOp::kSum)
          .view({20, 30});
  comm.all_reduce(whole.narrow(1, 3, 10));
  EXPECT_TRUE(same_bits(whole.narrow(1, 3, 10), right.narrow(1, 3, 10)));
  EXPECT_TRUE(same_bits(whole.narrow(1, 0, 3), before.narrow(1, 0, 3)));
  EXPECT_TRUE(same_bits(whole.narrow(1, 13, 17), before.narrow(1, 13, 17)));

  const torch::Tensor transposed = torch::full({3, 4}, comm.rank()).t();
  comm.broadcast(transposed, comm.size() - 1);
  EXPECT_TRUE(same_bits(transposed, torch::full({4, 3}, comm.size() - 1)));

  torch::Tensor leaf = torch::full({5}, 1.0F).requires_grad_();
  comm.all_reduce(leaf);
  EXPECT_TRUE(leaf.requires_grad());
  EXPECT_EQ(leaf.detach().sum().item<float>(), 5.0F * static_cast<float>(comm.size()));

  const torch::Tensor scalar = torch::tensor(2.0);
  comm.all_reduce(scalar, ReduceOp::kProduct);
  EXPECT_EQ(scalar.item<double>(), std::pow(2.0, comm.size()));
}

inline void check_reduce(Communicator& comm) {
  for (int root = 0; root < comm.size(); ++root) {
    const torch::Tensor tensor = of_rank(comm.rank(), 4099, torch::kFloat32);
    comm.reduce(tensor, ReduceOp::kSum, root);
    const torch::Tensor right =
        comm.rank() == root
            ? reduced_by_one(random_tensors(comm.size(), 4099, torch::kFloat32), ReduceOp::kSum)
            : of_rank(comm.rank(), 4099, torch::kFloat32);
    ASSERT_TRUE(same_bits(tensor, right));
  }
  EXPECT_THROW(comm.reduce(torch::ones(1), ReduceOp::kSum, comm.size()), CommError);
  EXPECT_THROW(comm.broadcast(torch::ones(1), -1), CommError);
}

inline void check_broadcast(Communicator& comm) {
  for (const std::int64_t count : kCounts) {
    for (int root = 0; root < comm.size(); ++root) {
      const torch::Tensor tensor = of_rank(comm.rank(), count, torch::kFloat32);
      comm.broadcast(tensor, root);
      ASSERT_TRUE(same_bits(tensor, of_rank(root, count, torch::kFloat32))) << count;
    }
  }
  for (const auto type : kAllTypes) {
    const torch::Tensor tensor = of_rank(comm.rank(), 11, type);
    comm.broadcast(tensor);
    ASSERT_TRUE(same_bits(tensor, of_rank(0, 11, type)));
  }
}

inline void check_gather(Communicator& comm) {
  // The tensor of rank 0 is empty.
  const auto shape = [](int rank) { return std::vector<std::int64_t>{rank, 3}; };
  const auto mine = of_rank(comm.rank(), comm.rank() * 3, torch::kFloat64).view(shape(comm.rank()));
  const auto check = [&](const std::vector<torch::Tensor>& all) {
    ASSERT_EQ(static_cast<int>(all.size()), comm.size());
    for (int rank = 0; rank < comm.size(); ++rank) {
      const auto right = of_rank(rank, rank * 3, torch::kFloat64).view(shape(rank));
      ASSERT_TRUE(same_bits(all[static_cast<std::size_t>(rank)], right));
    }
  };
  check(comm.all_gather(mine));
  for (int root = 0; root < comm.size(); ++root) {
    const auto all = comm.gather(mine, root);
    if (comm.rank() == root) {
      check(all);
    } else {
      EXPECT_TRUE(all.empty());
    }
  }
  // Large tensors, of different lengths.
  const auto count = [](int rank) { return 100'003 * (rank + 1); };
  const auto large = comm.all_gather(of_rank(comm.rank(), count(comm.rank()), torch::kFloat64));
  for (int rank = 0; rank < comm.size(); ++rank) {
    ASSERT_TRUE(same_bits(large[static_cast<std::size_t>(rank)],
                          of_rank(rank, count(rank), torch::kFloat64)));
  }
  const auto nothing = comm.all_gather(torch::empty({0, 2}, torch::kBool));
  EXPECT_EQ(nothing.back().size(1), 2);
}

inline void check_bytes(Communicator& comm) {
  const auto text = [](int rank) {
    return std::string(static_cast<std::size_t>(rank) * 300'000, static_cast<char>('a' + rank));
  };
  const auto all = comm.all_gather_bytes(text(comm.rank()));
  ASSERT_EQ(static_cast<int>(all.size()), comm.size());
  for (int rank = 0; rank < comm.size(); ++rank) {
    ASSERT_EQ(all[static_cast<std::size_t>(rank)], text(rank));
  }
  for (int root = 0; root < comm.size(); ++root) {
    ASSERT_EQ(comm.broadcast_bytes(text(comm.rank()), root), text(root));
    const auto gathered = comm.gather_bytes("of " + std::to_string(comm.rank()), root);
    if (comm.rank() != root) {
      EXPECT_TRUE(gathered.empty());
      continue;
    }
    for (int rank = 0; rank < comm.size(); ++rank) {
      ASSERT_EQ(gathered[static_cast<std::size_t>(rank)], "of " + std::to_string(rank));
    }
  }
  EXPECT_THAT(comm.all_gather_bytes(""), ::testing::Each(""));
}

inline void check_sum_parts(Communicator& comm) {
  for (const std::int64_t count : {std::int64_t{0}, std::int64_t{1003}, std::int64_t{70'001}}) {
    for (int leaves = 1; leaves <= 9; ++leaves) {
      const auto right =
          reduced_by_one(random_tensors(leaves, count, torch::kFloat32), ReduceOp::kSum);
      for (const bool in_place : {false, true}) {
        Parts parts{.leaves = leaves};
        const auto range = leaves_of({.rank = comm.rank(), .size = comm.size()}, leaves);
        for (int leaf = range.begin; leaf < range.end; ++leaf) {
          parts.tensors.push_back(of_rank(leaf, count, torch::kFloat32));
        }
        const torch::Tensor out = in_place && !parts.tensors.empty()
                                      ? parts.tensors.front()
                                      : torch::empty({count}, torch::kFloat32);
        comm.sum_parts(parts, out);
        ASSERT_TRUE(same_bits(out, right)) << leaves << " leaves of " << count;
      }
    }
  }
  // Some leaves were added up before.
  for (int leaves = comm.size(); leaves <= 11; ++leaves) {
    const Share share{.rank = comm.rank(), .size = comm.size()};
    const RunningSums sums({.share = share, .leaves = leaves});
    std::vector<torch::Tensor> arrays(static_cast<std::size_t>(sums.arrays()));
    for (auto& array : arrays) array = torch::zeros({1003});
    const auto range = leaves_of(share, leaves);
    for (int local = 0; local < range.count(); ++local) {
      arrays[static_cast<std::size_t>(sums.array_of(local))].add_(
          of_rank(range.begin + local, 1003, torch::kFloat32));
      for (const auto& [to, from] : sums.additions(local)) {
        arrays[static_cast<std::size_t>(to)].add_(arrays[static_cast<std::size_t>(from)]);
        arrays[static_cast<std::size_t>(from)].zero_();
      }
    }
    arrays.resize(sums.nodes().size());
    comm.sum_parts({.leaves = leaves, .tensors = arrays, .nodes = sums.nodes()}, arrays.front());
    ASSERT_TRUE(
        same_bits(arrays.front(),
                  reduced_by_one(random_tensors(leaves, 1003, torch::kFloat32), ReduceOp::kSum)))
        << leaves;
  }
  // Rounded sums, with and without numbers at the front that stay exact. Those do not fit bfloat16.
  for (const std::int64_t count : {std::int64_t{3}, std::int64_t{1003}, std::int64_t{70'001}}) {
    for (int leaves = 1; leaves <= 9; ++leaves) {
      for (const std::int64_t exact : {std::int64_t{0}, std::int64_t{3}}) {
        Parts parts{.leaves = leaves, .wire = Wire::kBf16, .exact = exact};
        const auto range = leaves_of({.rank = comm.rank(), .size = comm.size()}, leaves);
        for (int leaf = range.begin; leaf < range.end; ++leaf) {
          parts.tensors.push_back(of_rank(leaf, count, torch::kFloat32));
          parts.tensors.back().slice(0, 0, exact).fill_(4095);
        }
        const torch::Tensor out = torch::empty({count}, torch::kFloat32);
        comm.sum_parts(parts, out);
        torch::Tensor right = reduced_by_one(random_tensors(leaves, count, torch::kFloat32),
                                             ReduceOp::kSum, Wire::kBf16);
        right.slice(0, 0, exact).fill_(4095 * leaves);
        ASSERT_TRUE(same_bits(out, right)) << leaves << " leaves of " << count << ", " << exact;
      }
    }
  }
  EXPECT_THROW(comm.sum_parts({.leaves = 0}, torch::ones(1)), CommError);
  EXPECT_THROW(comm.sum_parts({.leaves = 1000, .tensors = {torch::ones(1)}}, torch::ones(1)),
               CommError);
}

inline void check_votes(Communicator& comm) {
  for (std::uint64_t round = 0; round < 20; ++round) {
    const auto words = comm.vote(round << 40 | static_cast<std::uint64_t>(comm.rank()));
    ASSERT_EQ(static_cast<int>(words.size()), comm.size());
    for (int rank = 0; rank < comm.size(); ++rank) {
      ASSERT_EQ(words[static_cast<std::size_t>(rank)],
                round << 40 | static_cast<std::uint64_t>(rank));
    }
    comm.barrier();
  }
}

inline void check_shared_memory(Communicator& comm) {
  const auto memory = comm.shared_memory(1000);
  if (!memory) return;
  EXPECT_EQ(memory->numel(), 1000);
  EXPECT_EQ(memory->count_nonzero().item<std::int64_t>(), 0);
  comm.synchronize();
  memory->data_ptr<std::uint8_t>()[comm.rank()] = static_cast<std::uint8_t>(comm.rank() + 1);
  comm.synchronize();
  for (int rank = 0; rank < comm.size(); ++rank) {
    ASSERT_EQ(memory->data_ptr<std::uint8_t>()[rank], rank + 1);
  }
  comm.synchronize();
}

inline void check_collectives(Communicator& comm) {
  check_votes(comm);
  check_broadcast(comm);
  check_all_reduce(comm);
  check_layouts(comm);
  check_reduce(comm);
  check_gather(comm);
  check_bytes(comm);
  check_sum_parts(comm);
  check_shared_memory(comm);
  comm.check();
  comm.barrier();
}

}  // namespace lockstep::comm

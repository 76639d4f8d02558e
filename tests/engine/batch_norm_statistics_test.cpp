#include "lockstep/engine/batch_norm_statistics.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/comm/local.h"
#include "lockstep/comm/shared.h"
#include "tests/support/ranks.h"

namespace lockstep {
namespace {

// The buffers of a batch norm over three channels, and a buffer of another kind.
struct Layer {
  torch::Tensor mean = torch::full({3}, 7.0F);
  torch::Tensor variance = torch::full({3}, 5.0F);
  torch::Tensor other = torch::full({2}, 3.0F);
  torch::Tensor count = torch::zeros({}, torch::kInt64);

  NamedTensors buffers() const {
    return {{"mean", mean}, {"variance", variance}, {"other", other}, {"count", count}};
  }
  void forward(const torch::Tensor& rows, bool training = true) const {
    const torch::NoGradGuard no_grad;
    torch::batch_norm(rows, {}, {}, mean, variance, training, 0.1, 1e-5, false);
  }
};

std::vector<torch::Tensor> batches() {
  torch::manual_seed(5);
  std::vector<torch::Tensor> rows;
  for (const std::int64_t size : {4, 7, 2, 5}) rows.push_back(torch::randn({size, 3, 2}) * 2 + 1);
  return rows;
}

TEST(BatchNormStatistics, AreMeansOverBatches) {
  comm::Local alone;
  const Layer layer;
  BatchNormStatistics statistics(layer.buffers(), alone, 1);
  torch::Tensor mean = torch::zeros({3});
  torch::Tensor variance = torch::zeros({3});
  for (const auto& rows : batches()) {
    const BatchNormStatistics::Scope scope(statistics, 0);
    layer.forward(rows);
    const torch::Tensor flat = rows.transpose(0, 1).flatten(1);
    mean += flat.mean(1) / 4;
    variance += flat.var(1) / 4;
  }
  EXPECT_TRUE(statistics.write());
  EXPECT_TRUE(layer.mean.allclose(mean, 1e-5, 1e-6));
  EXPECT_TRUE(layer.variance.allclose(variance, 1e-5, 1e-6));
  EXPECT_TRUE(layer.other.equal(torch::full({2}, 3.0F)));
}

TEST(BatchNormStatistics, EvaluationAndWhatIsOutsideOfAScopeDoNotCount) {
  comm::Local alone;
  const Layer layer;
  BatchNormStatistics statistics(layer.buffers(), alone, 1);
  {
    const BatchNormStatistics::Scope scope(statistics, 0);
    layer.forward(batches()[0], /*training=*/false);
  }
  layer.forward(batches()[1]);
  const torch::Tensor before = layer.mean.clone();
  EXPECT_FALSE(statistics.write());
  EXPECT_TRUE(layer.mean.equal(before));
  EXPECT_FALSE(before.equal(torch::full({3}, 7.0F))) << "the usual batch norm has a momentum";
}

TEST(BatchNormStatistics, SameBitsForAnyNumberOfRanks) {
  // The statistics of four shards, of which the third has no samples.
  const auto measure = [](comm::Communicator& comm) {
    const Layer layer;
    BatchNormStatistics statistics(layer.buffers(), comm, 4);
    const auto own = comm::leaves_of({.rank = comm.rank(), .size = comm.size()}, 4);
    for (int local = 0; local < own.count(); ++local) {
      const auto shard = static_cast<std::size_t>(own.begin + local);
      if (shard == 2) continue;
      const BatchNormStatistics::Scope scope(statistics, local);
      layer.forward(batches()[shard]);
      layer.forward(batches()[shard] * 3);
    }
    EXPECT_TRUE(statistics.write());
    return torch::cat({layer.mean, layer.variance});
  };
  comm::Local alone;
  const torch::Tensor expected = measure(alone);
  for (const int size : {2, 3}) {
    run_ranks(size, [&](process::HostGroup& host_group) {
      comm::Shared comm(host_group);
      EXPECT_TRUE(measure(comm).equal(expected)) << size << " ranks";
    });
  }
}

}  // namespace
}  // namespace lockstep

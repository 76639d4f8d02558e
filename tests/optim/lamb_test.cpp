#include "lockstep/optim/lamb.h"

#include <barrier>
#include <limits>
#include <thread>

#include "tests/optim/problem.h"

namespace lockstep::optim {
namespace {

using namespace testing;

TEST(Lamb, FollowsThePaper) {
  expect_golden("Lamb", [](const nlohmann::json& json) {
    return Lamb{
        .lr = json["lr"],
        .beta1 = json.value("beta1", 0.9),
        .beta2 = json.value("beta2", 0.999),
        .eps = json.value("eps", 1e-6),
        .weight_decay = json.value("weight_decay", 0.0),
        .bias_correction = json.value("bias_correction", true),
        .max_weight_norm = json.value("max_weight_norm", std::numeric_limits<double>::infinity())};
  });
}

TEST(Lamb, ResumesToTheBit) {
  expect_resumes(Lamb{.lr = 0.02, .weight_decay = 0.1, .max_weight_norm = 2.0}, Lamb{});
}

// Parameters of several blocks, and blocks with several parameters.
NamedTensors large_parameters() {
  NamedTensors parameters;
  for (const std::int64_t size : {5000, 3, 700, 12000, 64}) {
    const torch::Tensor values = torch::cos(torch::arange(size) * 0.7);
    parameters.emplace_back("p" + std::to_string(size), values.clone().requires_grad_());
  }
  return parameters;
}

void add_grads(const NamedTensors& parameters, int step) {
  for (const auto& [name, tensor] : parameters) {
    if (name == "p700" && step == 2) continue;  // takes part in the other steps only
    tensor.mutable_grad().add_(torch::sin(torch::arange(tensor.numel()) * 0.3 + step));
  }
}

// The bits do not depend on the number of parts, although the norms are those of whole parameters.
// Each part has a thread here, and an optimizer of its own for the same memory, as ranks have.
TEST(Lamb, PartsGiveTheSameBits) {
  const Lamb options{.lr = 0.02, .weight_decay = 0.1};
  const NamedTensors whole = large_parameters();
  FlatParameters flat(whole);
  const auto optimizer = OptimizerSpec(options).make(flat);
  for (int step = 1; step <= 3; ++step) {
    add_grads(whole, step);
    optimizer->step({.grad_scale = 0.5});
  }

  for (const int count : {2, 3}) {
    std::vector<torch::Tensor> common;
    std::vector<NamedTensors> named;
    std::vector<std::unique_ptr<FlatParameters>> flats;
    std::vector<std::unique_ptr<Optimizer>> parts;
    for (int rank = 0; rank < count; ++rank) {
      const auto next = std::make_shared<std::size_t>(0);
      named.push_back(large_parameters());
      // The first allocates, the others get the same memory in the same order.
      const auto allocate = [&common, rank, next](std::int64_t size,
                                                  const torch::TensorOptions& like) {
        if (rank == 0) common.push_back(torch::zeros({size}, like));
        return common[(*next)++];
      };
      flats.push_back(std::make_unique<FlatParameters>(
          named.back(), FlatOptions{.memory = allocate, .owns_values = rank == 0}));
      parts.push_back(OptimizerSpec(options).make(*flats.back()));
    }
    for (int step = 1; step <= 3; ++step) {
      add_grads(named[0], step);
      for (auto& each : flats) {
        each->collect_grads();
        each->write_marks(0, 0);
      }
      flats[0]->write_marks(0, 0);
      const std::int64_t sets[] = {0};
      for (auto& each : flats) each->read_marks(sets);
      std::barrier barrier(count);
      std::vector<std::thread> threads;
      for (int rank = 0; rank < count; ++rank) {
        threads.emplace_back([&, rank] {
          parts[static_cast<std::size_t>(rank)]->step(
              {.grad_scale = 0.5, .part = {.index = rank, .count = count}, .wait_for_parts = [&] {
                 barrier.arrive_and_wait();
               }});
        });
      }
      for (auto& thread : threads) thread.join();
    }
    for (std::size_t i = 0; i < whole.size(); ++i) {
      expect_same_bits(named[0][i].second.detach(), whole[i].second.detach());
    }
  }
}

TEST(Lamb, TypesWithoutKernelsHaveTheSameSteps) {
  const NamedTensors exact = large_parameters();
  NamedTensors rough;
  for (const auto& [name, tensor] : exact) {
    rough.emplace_back(name, tensor.detach().to(torch::kBFloat16).requires_grad_());
  }
  for (const NamedTensors& parameters : {exact, rough}) {
    FlatParameters flat(parameters);
    const auto optimizer = OptimizerSpec(Lamb{.lr = 0.1, .weight_decay = 0.1}).make(flat);
    for (int step = 1; step <= 3; ++step) {
      add_grads(parameters, step);
      optimizer->step();
    }
  }
  for (std::size_t i = 0; i < exact.size(); ++i) {
    // bfloat16 has 8 bits.
    EXPECT_TRUE(torch::allclose(rough[i].second.detach().to(torch::kFloat32),
                                exact[i].second.detach(), 0.02, 0.02))
        << exact[i].first;
  }
}

TEST(Lamb, AParameterOfZerosLeavesIt) {
  const torch::Tensor parameter = torch::zeros({3}).requires_grad_();
  FlatParameters flat({{"p", parameter}});
  const auto optimizer = OptimizerSpec(Lamb{.lr = 0.25, .eps = 1e-12}).make(flat);
  parameter.mutable_grad().copy_(torch::tensor({1.0, 2.0, -4.0}));
  optimizer->step();
  EXPECT_TRUE(torch::allclose(parameter.detach(), torch::tensor({-0.25, -0.25, 0.25})));
}

TEST(Lamb, NamesABadValue) {
  EXPECT_EQ(config_error(Lamb{.max_weight_norm = 0.0}),
            "optimizer Lamb: max_weight_norm: expected a number > 0, got 0");
  EXPECT_EQ(config_error(Lamb{.eps = 0.0}), "optimizer Lamb: eps: expected a number > 0, got 0");
}

}  // namespace
}  // namespace lockstep::optim

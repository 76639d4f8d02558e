#include "lockstep/dist/gradient_reducer.h"

#include <functional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/torch.h>

#include "tests/dist/workers.h"

namespace lockstep::dist {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Four parameters of 100 numbers. With kSmallBuckets, each has its own bucket.
NamedTensors four_parameters() {
  NamedTensors parameters;
  for (int i = 0; i < 4; ++i) {
    parameters.emplace_back(std::to_string(i), torch::full({100}, i + 1.0F).requires_grad_());
  }
  return parameters;
}

constexpr GradientReducer::Options kSmallBuckets{.bucket_bytes = 400};

std::shared_ptr<GradientReducer> reducer_of(const NamedTensors& parameters) {
  auto reducer = std::make_shared<GradientReducer>(parameters, kSmallBuckets);
  reducer->attach();
  return reducer;
}

double grad(const NamedTensors& parameters, std::size_t index) {
  return parameters[index].second.grad()[7].item<double>();
}

// Calls a function in the middle of backward().
struct CallInBackward : torch::autograd::Function<CallInBackward> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context,
                               const torch::Tensor& input, std::int64_t call) {
    context->saved_data["call"] = call;
    return input.clone();
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& grads) {
    (*reinterpret_cast<std::function<void()>*>(context->saved_data["call"].toInt()))();
    return {grads[0], torch::Tensor()};
  }
};

// `call` is called when the gradients of the last two parameters are complete, and those of the
// first two are not.
torch::Tensor loss_with_call(const NamedTensors& p, std::function<void()>& call) {
  const auto inner =
      CallInBackward::apply(p[0].second * p[1].second, reinterpret_cast<std::int64_t>(&call));
  return (inner * p[2].second * p[3].second).sum();
}

TEST(GradientReducer, SumsDuringBackward) {
  run_workers({.count = 2}, [](int rank, int) {
    const auto parameters = four_parameters();
    const auto reducer = reducer_of(parameters);
    // The last two buckets have been sent by now, so this collective waits for them. The gradients
    // themselves are replaced at the end.
    int calls = 0;
    std::function<void()> call = [&] {
      ++calls;
      EXPECT_EQ(all_reduce(torch::tensor(rank + 1.0)).item<double>(), 3.0);
      EXPECT_EQ(grad(parameters, 3), (rank + 1) * 6.0);
    };
    for (int step = 1; step <= 20; ++step) {
      for (const auto& [name, parameter] : parameters) parameter.mutable_grad().reset();
      ((rank + 1) * loss_with_call(parameters, call)).backward();
      EXPECT_EQ(grad(parameters, 0), 1.5 * 24);
      EXPECT_EQ(grad(parameters, 3), 1.5 * 6);
      EXPECT_EQ(reducer->passes(), static_cast<std::uint64_t>(step));
    }
    EXPECT_EQ(calls, 20);
  });
}

TEST(GradientReducer, StartsAfreshAfterAFailedBackward) {
  run_workers({.count = 2}, [](int rank, int) {
    const auto parameters = four_parameters();
    const auto reducer = reducer_of(parameters);
    std::function<void()> fail = [] { throw DataError("in the middle"); };
    std::function<void()> nothing = [] {};
    for (int round = 0; round < 3; ++round) {
      reducer->set_weight(5);
      const auto bad = loss_with_call(parameters, fail);
      EXPECT_THAT(error_of([&] { bad.backward(); }), HasSubstr("in the middle"));
      EXPECT_EQ(reducer->passes(), static_cast<std::uint64_t>(round));
      for (const auto& [name, parameter] : parameters) parameter.mutable_grad().reset();
      if (rank == 1) reducer->set_weight(3);  // rank 0 has the default again
      ((rank + 1) * loss_with_call(parameters, nothing)).backward();
      EXPECT_EQ(grad(parameters, 0), 1.75 * 24);
      for (const auto& [name, parameter] : parameters) parameter.mutable_grad().reset();
    }
  });
}

// Only rank 0 catches the error of its backward(), and goes on with the next one. The buckets that
// then meet have the same size.
TEST(GradientReducer, RanksInDifferentPassesAreAnError) {
  const std::string error = error_of([] {
    run_workers({.count = 2}, [](int rank, int) {
      const auto parameters = four_parameters();
      const auto reducer = reducer_of(parameters);
      std::function<void()> fail = [] { throw DataError("only here"); };
      std::function<void()> nothing = [] {};
      if (rank == 0) {
        const auto bad = loss_with_call(parameters, fail);
        EXPECT_THAT(error_of([&] { bad.backward(); }), HasSubstr("only here"));
      }
      loss_with_call(parameters, nothing).backward();
    });
  });
  EXPECT_THAT(error, HasSubstr("bucket 2 of pass 1 met another one"));
}

// Only rank 0 uses the last parameter, so only its first bucket is sent before the function runs:
// it meets the function's collective of rank 1. (A function that communicates inside of backward()
// needs the same parameters on all ranks.)
TEST(GradientReducer, BucketsAreSentBeforeTheEndOfBackward) {
  const std::string error = error_of([] {
    run_workers({.count = 2}, [](int rank, int) {
      const auto p = four_parameters();
      const auto reducer = reducer_of(p);
      std::function<void()> call = [] { barrier(); };
      const auto inner =
          CallInBackward::apply(p[0].second * p[1].second, reinterpret_cast<std::int64_t>(&call));
      (rank == 0 ? inner * p[3].second : inner).sum().backward();
    });
  });
  EXPECT_THAT(error, HasSubstr("reduction of gradients"));
}

// Autograd goes from the term that was computed last to the first. The ranks have other orders, and
// there are several buckets, which would be sent at once if a reducer were alone.
TEST(GradientReducer, TheOrderInWhichRanksReachSeveralDoesNotMatter) {
  run_workers({.count = 3}, [](int rank, int) {
    const std::vector<NamedTensors> parts = {four_parameters(), four_parameters(),
                                             four_parameters()};
    std::vector<std::shared_ptr<GradientReducer>> reducers;
    for (const auto& part : parts) reducers.push_back(reducer_of(part));
    for (int step = 1; step <= 10; ++step) {
      torch::Tensor loss = torch::zeros({});
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const std::size_t which = (i + static_cast<std::size_t>(rank + step)) % parts.size();
        for (const auto& [name, parameter] : parts[which]) {
          parameter.mutable_grad().reset();
          loss = loss + (rank + 1) * static_cast<double>(which + 1) * parameter.sum();
        }
      }
      loss.backward();
      for (std::size_t i = 0; i < parts.size(); ++i) {
        EXPECT_EQ(grad(parts[i], 0), 2.0 * static_cast<double>(i + 1));
        EXPECT_EQ(reducers[i]->passes(), static_cast<std::uint64_t>(step));
      }
    }
  });
}

// Only one of several sends before the end of backward(): the last one that is trained. If it is
// the first one, because the other is frozen, the function's collective meets a bucket that only
// rank 0 has computed, as in the test above.
TEST(GradientReducer, OnlyOneOfSeveralSendsBeforeTheEnd) {
  for (const bool trained : {true, false}) {
    const std::string error = error_of([&] {
      run_workers({.count = 2}, [&](int rank, int) {
        const auto p = four_parameters();
        const auto later = four_parameters();
        const auto reducer = reducer_of(p);
        const auto last = reducer_of(later);
        for (const auto& [name, parameter] : later) parameter.requires_grad_(trained);
        std::function<void()> call = [] { barrier(); };
        const auto inner =
            CallInBackward::apply(p[0].second * p[1].second, reinterpret_cast<std::int64_t>(&call));
        (rank == 0 ? inner * p[3].second : inner).sum().backward();
      });
    });
    EXPECT_EQ(error.empty(), trained) << error;
    if (!trained) {
      EXPECT_THAT(error, HasSubstr("reduction of gradients"));
    }
  }
}

TEST(GradientReducer, RefusesOverlappingCalls) {
  run_workers({.count = 2}, [](int, int) {
    const auto parameters = four_parameters();
    const auto reducer = reducer_of(parameters);
    std::string inner;
    std::function<void()> other_thread = [&] {
      std::thread([&] {
        const auto loss = parameters[0].second.sum();
        inner = error_of<ConfigError>([&] { loss.backward(); });
      }).join();
    };
    const auto loss = loss_with_call(parameters, other_thread);
    const std::string outer = error_of<ConfigError>([&] { loss.backward(); });
    EXPECT_THAT(inner, AllOf(HasSubstr("parameter 0"), HasSubstr("two threads")));
    EXPECT_THAT(outer, HasSubstr("another backward()"));
    // One after another is allowed, in any thread.
    for (const auto& [name, parameter] : parameters) parameter.mutable_grad().reset();
    std::thread([&] { parameters[1].second.sum().backward(); }).join();
    parameters[1].second.sum().backward();
    EXPECT_EQ(grad(parameters, 1), 2.0);
  });
}

TEST(GradientReducer, RefusesAGraphOfTheMean) {
  run_workers({.count = 2}, [](int, int) {
    const auto parameters = four_parameters();
    const auto reducer = reducer_of(parameters);
    const auto& p = parameters[0].second;
    const auto loss = p.square().sum();
    EXPECT_THAT(error_of<ConfigError>([&] { loss.backward({}, true, /*create_graph=*/true); }),
                AllOf(HasSubstr("create_graph"), HasSubstr("autograd::grad")));
    // A penalty on the gradient is allowed: only the outer backward() accumulates.
    p.mutable_grad().reset();
    const auto inner = torch::autograd::grad({p.pow(3).sum()}, {p}, {}, true, true)[0];
    inner.sum().backward();
    EXPECT_EQ(grad(parameters, 0), 6.0);
  });
}

TEST(GradientReducer, AParameterHasOne) {
  const auto parameters = four_parameters();
  {
    const auto reducer = std::make_shared<GradientReducer>(parameters, kSmallBuckets);
    EXPECT_TRUE(GradientReducer::has(parameters[2].second));
    EXPECT_THAT(error_of<ConfigError>([&] {
                  GradientReducer({{"again", parameters[2].second}}, kSmallBuckets);
                }),
                HasSubstr("parameter again"));
  }
  EXPECT_FALSE(GradientReducer::has(parameters[2].second));
  EXPECT_THAT(error_of<ConfigError>([&] { GradientReducer(parameters, {.bucket_bytes = 0}); }),
              HasSubstr("got 0"));
}

TEST(GradientReducer, ATensorWithTwoNamesCountsOnce) {
  run_workers({.count = 2}, [](int rank, int) {
    auto parameters = four_parameters();
    parameters.emplace_back("tied", parameters[0].second);
    const auto reducer = reducer_of(parameters);
    ((rank + 1) * parameters[0].second).sum().backward();
    EXPECT_EQ(grad(parameters, 0), 1.5);
  });
}

TEST(GradientReducer, IsTiedToItsGroup) {
  run_workers({.count = 2, .init = false}, [](int, int) {
    init_process_group();
    const auto parameters = four_parameters();
    const auto reducer = reducer_of(parameters);
    const auto loss = parameters[0].second.sum();
    cleanup();
    EXPECT_FALSE(reducer->has_group());
    reducer->attach();  // a forward pass is still allowed
    EXPECT_THAT(error_of<ConfigError>([&] { loss.backward(); }), HasSubstr("has ended"));
    init_process_group();
    EXPECT_THAT(error_of<ConfigError>([&] { reducer->attach(); }),
                HasSubstr("prepare_ddp_model()"));
  });
}

}  // namespace
}  // namespace lockstep::dist

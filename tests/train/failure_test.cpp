#include "lockstep/train/failure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The message of an exception that was thrown at a place; it must still be caught as an `E`.
template <typename E, typename Throw>
std::string rethrown(const Throw& action, const std::string& place = "loader 'train', epoch 2") {
  try {
    try {
      action();
    } catch (...) {
      rethrow_from(place);
    }
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

void fail_in_torch() {
  TORCH_CHECK(false, "shapes do not fit");
}

TEST(Failure, LibTorchsErrorsLoseTheirStackAndKeepTheirType) {
  EXPECT_EQ(rethrown<c10::Error>(fail_in_torch), "loader 'train', epoch 2: shapes do not fit");
  EXPECT_EQ(rethrown<c10::Error>(fail_in_torch, ""), "shapes do not fit");
  EXPECT_EQ(rethrown<c10::IndexError>([] { TORCH_CHECK_INDEX(false, "Target -1"); }),
            "loader 'train', epoch 2: Target -1");
}

TEST(Failure, OursKeepTheirType) {
  EXPECT_EQ(rethrown<DataError>([] { throw DataError("a hole in x.h5"); }),
            "loader 'train', epoch 2: a hole in x.h5");
  EXPECT_EQ(rethrown<std::runtime_error>([] { throw std::runtime_error("boom"); }),
            "loader 'train', epoch 2: boom");
}

TEST(Failure, APlaceThatIsThereIsNotSaidAgain) {
  EXPECT_EQ(rethrown<Error>([] { throw Error("loader 'train', epoch 2, batch 1: is nan"); }),
            "loader 'train', epoch 2, batch 1: is nan");
  EXPECT_EQ(rethrown<WorkerError>([] { throw WorkerError("rank 1 (epoch 1): gone"); }),
            "rank 1 (epoch 1): gone");
}

TEST(Failure, AUsersExceptionIsHisOwn) {
  struct Own : std::runtime_error {
    using std::runtime_error::runtime_error;
    int code = 7;
  };
  EXPECT_EQ(rethrown<Own>([] { throw Own("mine"); }), "mine");
  EXPECT_THROW(rethrown<Own>([] { throw 5; }), int);
}

template <typename E>
std::string explained(const std::function<void()>& action) {
  try {
    try {
      action();
    } catch (...) {
      rethrow_with("it failed twice");
    }
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

TEST(Failure, AnExplanationFollowsTheMessage) {
  EXPECT_EQ(explained<WorkerError>([] { throw WorkerError("rank 1: gone"); }),
            "rank 1: gone\nit failed twice");
  EXPECT_EQ(explained<CommError>([] { throw CommError("late"); }), "late\nit failed twice");
  EXPECT_EQ(explained<std::runtime_error>([] { throw std::runtime_error("x"); }),
            "x\nit failed twice");
  const toy::Warnings warnings;
  EXPECT_EQ(explained<std::out_of_range>([] { throw std::out_of_range("mine"); }), "mine");
  EXPECT_THROW(explained<Error>([] { throw 5; }), int);
  EXPECT_EQ(warnings.texts, (std::vector<std::string>{"it failed twice", "it failed twice"}));
}

// The error as a program prints it. The text about targets out of bounds is LibTorch's.
TEST(Failure, ARunSaysWhereItFailed) {
  TrainOptions options = toy::options();
  auto bad = std::make_shared<toy::Hooks>();
  bad->batch_start = [](State& s) {
    if (s.progress.epoch == 2 && s.loader_batch == 3) s.batch["targets"].fill_(-1);
  };
  options.callbacks = {bad};
  const std::string alone = toy::error_of([&] { toy::train(options); });
  EXPECT_THAT(alone, HasSubstr("loader 'train', epoch 2, batch 3: Target -1 is out of bounds."));
  EXPECT_THAT(alone, Not(HasSubstr("frame #")));
  EXPECT_THAT(alone, Not(HasSubstr("Exception raised from")));
  options.ddp = true;
  options.workers = 2;
  const std::string with_others = toy::error_of([&] { toy::train(options); });
  EXPECT_THAT(with_others, HasSubstr("epoch 2, batch 3"));
  EXPECT_THAT(with_others, HasSubstr("Target -1 is out of bounds."));
  EXPECT_THAT(with_others, Not(HasSubstr("frame #")));
}

TEST(Failure, AnEvaluationSaysWhereItFailed) {
  auto bad = std::make_shared<toy::Hooks>();
  bad->batch_end = [](State& s) {
    if (s.loader_batch == 2) throw Error("boom");
  };
  EXPECT_EQ(toy::error_of([&] {
              SupervisedRunner().evaluate_loader({.loader = {toy::points(30), {.batch_size = 10}},
                                                  .model = toy::model(),
                                                  .callbacks = {bad}});
            }),
            "loader 'valid', batch 2: boom");
}

// Between batches there is no batch to name.
TEST(Failure, AnEpochsEndHasNoBatch) {
  TrainOptions options = toy::options();
  auto bad = std::make_shared<toy::Hooks>();
  bad->epoch_end = [](State&) { throw Error("boom"); };
  options.callbacks = {bad};
  EXPECT_EQ(toy::error_of([&] { toy::train(options); }), "epoch 1: boom");
}

}  // namespace
}  // namespace lockstep

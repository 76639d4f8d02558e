#include "lockstep/network/recurrent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "tests/network/support.h"

namespace lockstep::network {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

TEST(Recurrent, ComputesWhatPythonComputes) {
  const auto lengths = torch::tensor({4, 7, 1});
  Recurrent lstm(RecurrentOptions{.vocabulary = 11,
                                  .classes = 3,
                                  .embedding = 5,
                                  .hidden = 6,
                                  .layers = 2,
                                  .bidirectional = true});
  testing::fill_by_formula(*lstm);
  testing::expect_golden_names("lstm", *lstm);
  testing::expect_golden("lstm", "train", lstm->forward(testing::wave_tokens({3, 7}, 11), lengths));

  Recurrent gru(RecurrentOptions{
      .cell = Cell::kGRU, .features = 4, .classes = 3, .per_token = true, .hidden = 6});
  testing::fill_by_formula(*gru);
  testing::expect_golden_names("gru", *gru);
  testing::expect_golden("gru", "train", gru->forward(testing::wave({3, 7, 4}, 0), lengths));
}

TEST(Recurrent, PaddingDoesNotChangeTheResult) {
  for (const auto cell : {Cell::kLSTM, Cell::kGRU}) {
    for (const bool per_token : {false, true}) {
      torch::manual_seed(1);
      Recurrent model(RecurrentOptions{.cell = cell,
                                       .features = 4,
                                       .classes = 3,
                                       .per_token = per_token,
                                       .hidden = 6,
                                       .bidirectional = true});
      const auto input = torch::randn({2, 7, 4});
      auto other = input.clone();
      other[0].narrow(0, 4, 3).fill_(9);
      const auto lengths = torch::tensor({4, 7});
      const auto output = model->forward(input, lengths);
      EXPECT_TRUE(output.equal(model->forward(other, lengths)));
      const auto alone = model->forward(input.narrow(0, 0, 1).narrow(1, 0, 4));
      const auto same = per_token ? output.narrow(2, 0, 4) : output;
      EXPECT_TRUE(same.narrow(0, 0, 1).allclose(alone, 1e-5, 1e-6));
      EXPECT_TRUE(
          model->forward(input).narrow(0, 1, 1).allclose(output.narrow(0, 1, 1), 1e-5, 1e-6));
    }
  }
}

TEST(Recurrent, TrainsAllParameters) {
  for (const auto cell : {Cell::kLSTM, Cell::kGRU}) {
    for (const bool per_token : {false, true}) {
      torch::manual_seed(1);
      Recurrent model(RecurrentOptions{.cell = cell,
                                       .vocabulary = 5,
                                       .per_token = per_token,
                                       .layers = 2,
                                       .bidirectional = true,
                                       .dropout = 0.1});
      testing::expect_gradients_everywhere(*model, model->forward(testing::wave_tokens({4, 9}, 5)));
    }
  }
}

TEST(Recurrent, RefusesWrongOptionsAndInputs) {
  const auto error = [](const RecurrentOptions& options) {
    return error_of([&] { Recurrent{options}; });
  };
  EXPECT_THAT(error({}), HasSubstr("got neither"));
  EXPECT_THAT(error({.vocabulary = 5, .features = 4}), HasSubstr("got both"));
  EXPECT_THAT(error({.features = 0}), HasSubstr("features: expected a positive integer, got 0"));
  EXPECT_THAT(error({.features = 4, .layers = 0}), HasSubstr("layers"));
  Recurrent model(RecurrentOptions{.features = 4});
  EXPECT_THAT(error_of([&] {
                model->forward(torch::zeros({2, 7, 5}));
              }),
              HasSubstr("[batch, tokens, 4 features], got Float [2, 7, 5]"));
  EXPECT_THAT(error_of([&] {
                model->forward(torch::zeros({2, 7, 4}), torch::tensor({8, 1}));
              }),
              HasSubstr("from 1 to 7"));
}

}  // namespace
}  // namespace lockstep::network

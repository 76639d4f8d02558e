#include "lockstep/optim/option_tables.h"

#include <tuple>
#include <type_traits>

#include <gtest/gtest.h>

namespace lockstep::optim {
namespace {

template <typename Options>
constexpr std::size_t kInTable =
    std::tuple_size_v<std::remove_cvref_t<decltype(OptionTable<Options>::kFields)>>;

// A structured binding compiles only with the number of the members.
TEST(OptionTables, HaveEveryMember) {
  const auto three = []<typename Options>(const Options& options) {
    [[maybe_unused]] const auto& [a, b, c] = options;
    return kInTable<Options> == 3;
  };
  const auto five = []<typename Options>(const Options& options) {
    [[maybe_unused]] const auto& [a, b, c, d, e] = options;
    return kInTable<Options> == 5;
  };
  const auto six = []<typename Options>(const Options& options) {
    [[maybe_unused]] const auto& [a, b, c, d, e, f] = options;
    return kInTable<Options> == 6;
  };
  const auto four = []<typename Options>(const Options& options) {
    [[maybe_unused]] const auto& [a, b, c, d] = options;
    return kInTable<Options> == 4;
  };
  EXPECT_TRUE(six(Adam{}) && six(AdamW{}) && six(RMSprop{}) && six(NAdam{}));
  EXPECT_TRUE(five(SGD{}) && five(Adagrad{}) && five(RAdam{}) && five(Adamax{}));
  EXPECT_TRUE(four(Adadelta{}) && four(Lion{}) && four(CosineAnnealingWarmRestarts{}));
  [[maybe_unused]] const auto& [lr, beta1, beta2, eps, decay, corrected, norm] = Lamb{};
  EXPECT_EQ(kInTable<Lamb>, 7u);
  EXPECT_TRUE(three(StepLR{}) && three(MultiStepLR{}) && three(CosineAnnealingLR{}) &&
              three(PolynomialLR{}));
  [[maybe_unused]] const auto& [base, max, up, down, mode, factor, cycled, low, high, when] =
      CyclicLR{};
  EXPECT_EQ(kInTable<CyclicLR>, 10u);
  [[maybe_unused]] const auto [gamma, per] = ExponentialLR{};
  EXPECT_EQ(kInTable<ExponentialLR>, 2u);
  [[maybe_unused]] const auto [start, end, iters, unit] = LinearLR{};
  EXPECT_EQ(kInTable<LinearLR>, 4u);
  [[maybe_unused]] const auto [a, b, c, d, e, f, g, h, i, j, k] = OneCycleLR{};
  EXPECT_EQ(kInTable<OneCycleLR>, 11u);
  [[maybe_unused]] const auto [p, q, r, s, t, u, v, w, x] = ReduceLROnPlateau{};
  EXPECT_EQ(kInTable<ReduceLROnPlateau>, 9u);
}

TEST(OptionTables, AStateHasEveryFieldAndGivesItBack) {
  const SGD options{.lr = 0.5, .momentum = 0.25, .weight_decay = 0.125, .nesterov = true};
  const StateDict state = fields_to_state(options);
  EXPECT_EQ(state.size(), 5u);
  EXPECT_EQ(state.get<double>("momentum"), 0.25);
  const auto again = fields_from_state<SGD>(state);
  EXPECT_EQ(again.lr, 0.5);
  EXPECT_EQ(again.momentum, 0.25);
  EXPECT_EQ(again.dampening, 0.0);
  EXPECT_EQ(again.weight_decay, 0.125);
  EXPECT_TRUE(again.nesterov);
}

}  // namespace
}  // namespace lockstep::optim

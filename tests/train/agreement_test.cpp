#include "lockstep/train/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/callback/classification.h"
#include "lockstep/comm/local.h"
#include "lockstep/comm/shared.h"
#include "lockstep/train/plan.h"
#include "tests/support/ranks.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// The message that rank 0 throws if rank r has `of_rank[r]`.
std::string complaint(const std::vector<Agreement>& of_rank) {
  std::string text;
  run_ranks(static_cast<int>(of_rank.size()), [&](process::HostGroup& host_group) {
    comm::Shared communicator(host_group);
    const auto& mine = of_rank[static_cast<std::size_t>(host_group.rank())];
    const std::string said = toy::error_of([&] { check_agreement(mine, communicator); });
    if (host_group.rank() == 0) text = said;
    communicator.barrier();
  });
  return text;
}

TEST(Agreement, EqualRanksAgree) {
  EXPECT_EQ(complaint({{{"seed", "42"}}, {{"seed", "42"}}, {{"seed", "42"}}}), "");
}

TEST(Agreement, EveryDifferenceIsNamedWithValuesAndRanks) {
  EXPECT_EQ(
      complaint({{{"seed", "42"}}, {{"seed", "43"}}}),
      "ranks disagree about the seed: rank 0 has 42, rank 1 has 43; start every rank with the "
      "same options");
  const std::string two = complaint({{{"seed", "42"}, {"shards", "3"}, {"num_epochs", "5"}},
                                     {{"seed", "43"}, {"shards", "3"}, {"num_epochs", "6"}},
                                     {{"seed", "42"}, {"shards", "3"}, {"num_epochs", "5"}}});
  EXPECT_THAT(two, AllOf(HasSubstr("the seed: ranks 0, 2 have 42, rank 1 has 43"),
                         HasSubstr("the num_epochs: ranks 0, 2 have 5, rank 1 has 6"),
                         Not(HasSubstr("shards"))));
  EXPECT_THAT(complaint({{{"loader 'a'", "x\ny"}}, {}}),
              HasSubstr("the loader 'a': rank 0 has x y, rank 1 has nothing"));
  EXPECT_THAT(complaint({{{"CPU capability", "AVX2"}}, {{"CPU capability", "AVX512"}}}),
              HasSubstr("ATEN_CPU_CAPABILITY"));
}

// Every option that must be the same on all ranks is compared.
TEST(Agreement, ComparesWhateverDecidesWhatIsTrained) {
  const auto text = [](const std::function<void(Plan&)>& change) {
    TrainOptions options = toy::options();
    Plan plan{.options = options,
              .model = options.model,
              .models = {{"model", options.model}},
              .criterion = options.criterion,
              .criterions = {{"criterion", options.criterion}},
              .optimizers = {{.spec = options.optimizer, .networks = {"model"}}},
              .phases = {{.name = "", .optimizers = {"optimizer"}}},
              .loaders = options.loaders,
              .callbacks = {},
              .engine = std::make_shared<DeviceEngine>(),
              .loss_key = "loss",
              .handle_batch = {},
              .keys = {},
              .known_metrics = {},
              .selection = {},
              .step = {}};
    change(plan);
    std::string all;
    for (const auto& [name, value] : agreement_of(plan)) all += name + "=" + value + "\n";
    return all;
  };
  const std::string before = text([](Plan&) {});
  EXPECT_EQ(text([](Plan&) {}), before);
  EXPECT_EQ(text([](Plan& p) { p.options.seed = 42; }), before) << "the default, given explicitly";
  const data::DatasetPtr data = toy::points(50);
  const auto loader = [&](const data::LoaderOptions& o) {
    return [=](Plan& p) { p.loaders = {{"train", {data, o}}}; };
  };
  const std::string plain = text(loader({.batch_size = 8}));
  struct Odd : data::Sampler {
    explicit Odd(std::int64_t by) : by_(by) {}
    std::int64_t size() const override { return 2; }
    std::vector<std::int64_t> indices(std::int64_t) const override { return {0, by_}; }
    std::int64_t by_;
  };
  const std::vector<std::function<void(Plan&)>> changes = {
      [](Plan& p) { p.options.seed = 43; },
      [](Plan& p) { p.options.num_epochs = 9; },
      [](Plan& p) { p.options.accumulation_steps = 2; },
      [](Plan& p) { p.options.clip_grad_norm = 1; },
      [](Plan& p) { p.options.clip_grad_value = 1; },
      [](Plan& p) { p.options.valid_metric = "accuracy01"; },
      [](Plan& p) { p.options.profile = true; },
      [](Plan& p) { p.options.resume = "last"; },
      [](Plan& p) { p.optimizers[0].spec = optim::Adam{.lr = 0.02}; },
      [](Plan& p) { p.optimizers[0].scheduler = optim::StepLR{.step_size = 2}; },
      [](Plan& p) { p.criterions.set("criterion", torch::nn::MSELoss()); },
      [](Plan& p) { p.models.set("other", p.model); },
      [](Plan& p) { p.optimizers.push_back({.name = "other", .spec = p.optimizers[0].spec}); },
      [](Plan& p) { p.phases = std::vector{Phase{.name = "a", .optimizers = {"optimizer"}}}; },
      [](Plan& p) { p.callbacks = {std::make_shared<AccuracyCallback>()}; },
      [](Plan& p) {
        p.loaders.set("test", {toy::points(5), {}});
      },
      loader({.batch_size = 8}),
  };
  for (std::size_t i = 0; i < changes.size(); ++i) EXPECT_NE(text(changes[i]), before) << i;
  for (const Ranks ranks : {Ranks::kPrimary, Ranks::kOthers}) {
    struct Somewhere : toy::Hooks {
      CallbackTraits traits() const override { return {.ranks = where}; }
      Ranks where = Ranks::kAll;
    };
    const auto callback = std::make_shared<Somewhere>();
    callback->where = ranks;
    EXPECT_EQ(text([&](Plan& p) { p.callbacks = {callback}; }), before)
        << "some ranks do not have it";
  }
  const std::vector<data::LoaderOptions> others = {
      {.batch_size = 9},
      {.batch_size = 8, .shuffle = true},
      {.batch_size = 8, .drop_last = true},
      {.batch_size = 8, .seed = 3},
      {.batch_size = 8, .sampler = std::make_shared<Odd>(1)},
      {.global_batch_size = 8},
      {.batch_size = 8, .collate = data::pad()},
  };
  for (std::size_t i = 0; i < others.size(); ++i) EXPECT_NE(text(loader(others[i])), plain) << i;
  EXPECT_NE(text(loader({.collate = data::pad()})),
            text(loader({.collate = data::pad({.value = 1})})));
  EXPECT_NE(text(loader({.sampler = std::make_shared<Odd>(1)})),
            text(loader({.sampler = std::make_shared<Odd>(2)})));
  struct Told : Odd {
    Told(std::int64_t by, std::string said) : Odd(by), said_(std::move(said)) {}
    std::string settings() const override { return said_; }
    std::string said_;
  };
  EXPECT_EQ(text(loader({.sampler = std::make_shared<Told>(1, "a")})),
            text(loader({.sampler = std::make_shared<Told>(2, "a")})))
      << "a sampler that tells its settings is compared by them";
  EXPECT_NE(text(loader({.sampler = std::make_shared<Told>(1, "a")})),
            text(loader({.sampler = std::make_shared<Told>(1, "b")})));
  const auto distributed = [&](const data::DistributedSamplerOptions& options) {
    return text(loader({.sampler = std::make_shared<data::DistributedSampler>(50, options)}));
  };
  const std::string first = distributed({.num_replicas = 2, .rank = 0, .seed = 1});
  EXPECT_EQ(distributed({.num_replicas = 2, .rank = 1, .seed = 1}), first);
  EXPECT_NE(distributed({.num_replicas = 2, .rank = 1, .seed = 2}), first);
  EXPECT_NE(distributed({.num_replicas = 2, .rank = 1, .shuffle = false, .seed = 1}), first);
}

}  // namespace
}  // namespace lockstep

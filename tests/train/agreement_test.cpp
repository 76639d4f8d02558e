#include "lockstep/train/agreement.h"

#include <set>
#include <sstream>
#include <typeinfo>

#include <c10/util/Type.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/option_text.h"
#include "lockstep/callback/batch_overfit.h"
#include "lockstep/callback/check_run.h"
#include "lockstep/callback/checkpoint.h"
#include "lockstep/callback/classification.h"
#include "lockstep/callback/confusion_matrix.h"
#include "lockstep/callback/control_flow.h"
#include "lockstep/callback/criterion.h"
#include "lockstep/callback/early_stopping.h"
#include "lockstep/callback/freeze.h"
#include "lockstep/callback/lambda.h"
#include "lockstep/callback/lr_finder.h"
#include "lockstep/callback/periodic_loader.h"
#include "lockstep/callback/scheduler.h"
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

// What ranks compare if their plan is a small one with a change.
std::string text(const std::function<void(Plan&)>& change) {
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
}

// Every option that must be the same on all ranks is compared.
TEST(Agreement, ComparesWhateverDecidesWhatIsTrained) {
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
      [](Plan& p) { p.options.clip_grad = [](auto) {}; },
      [](Plan& p) { p.options.log_gradient_norm = true; },
      [](Plan& p) { p.options.valid_metric = "accuracy01"; },
      [](Plan& p) { p.options.profile = true; },
      [](Plan& p) { p.options.resume = "last"; },
      [](Plan& p) { p.options.weights_skip = {"fc.*"}; },
      [](Plan& p) { p.options.weights = "a.pth"; },
      [](Plan& p) {
        p.options.network_weights = {{"generator", "a.pth"}};
      },
      [](Plan& p) { p.optimizers[0].spec = optim::Adam{.lr = 0.02}; },
      [](Plan& p) { p.optimizers[0].scheduler = optim::StepLR{.step_size = 2}; },
      [](Plan& p) { p.criterions.set("criterion", torch::nn::MSELoss()); },
      [](Plan& p) { p.models.set("other", p.model); },
      [](Plan& p) { p.runner_type = "Other"; },
      [](Plan& p) { p.runner_options = "weight=0.5"; },
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
  struct Mixing {
    Batch operator()(Batch batch, data::SampleRandom&) const { return batch; }
    std::string settings() const { return fmt::format("alpha={}", alpha); }
    double alpha = 0;
  };
  const std::vector<data::LoaderOptions> others = {
      {.batch_size = 9},
      {.batch_size = 8, .shuffle = true},
      {.batch_size = 8, .drop_last = true},
      {.batch_size = 8, .seed = 3},
      {.batch_size = 8, .sampler = std::make_shared<Odd>(1)},
      {.global_batch_size = 8},
      {.batch_size = 8, .collate = data::pad()},
      {.batch_size = 8, .batch_transform = Mixing{.alpha = 0.2}},
  };
  for (std::size_t i = 0; i < others.size(); ++i) EXPECT_NE(text(loader(others[i])), plain) << i;
  EXPECT_NE(text(loader({.collate = data::pad()})),
            text(loader({.collate = data::pad({.value = 1})})));
  EXPECT_NE(text(loader({.batch_transform = Mixing{.alpha = 0.2}})),
            text(loader({.batch_transform = Mixing{.alpha = 0.3}})));
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

std::string with_callback(CallbackPtr callback) {
  return text([&](Plan& p) { p.callbacks = {std::move(callback)}; });
}

// Expects that all callbacks of a kind are compared as different, and a copy as equal.
template <typename C, typename Options>
void expect_compared(const std::vector<Options>& options) {
  std::set<std::string> texts;
  for (const Options& some : options) {
    texts.insert(with_callback(std::make_shared<C>(some)));
    EXPECT_EQ(with_callback(std::make_shared<C>(some)), with_callback(std::make_shared<C>(some)));
  }
  EXPECT_EQ(texts.size(), options.size()) << c10::demangle(typeid(C).name());
}

// With another weight, for example, a rank would train another loss.
TEST(Agreement, ComparesTheOptionsOfCallbacks) {
  const Criterion loss = torch::nn::CrossEntropyLoss();
  const MetricKey key{.loader = "valid", .metric = "loss"};
  expect_compared<CriterionCallback>(
      std::vector<CriterionCallbackOptions>{{.criterion = loss},
                                            {.criterion = loss, .weight = 0.1},
                                            {.criterion = loss, .loss_key = "other"},
                                            {.criterion = loss, .input_key = "other"},
                                            {.criterion = loss, .target_key = "other"},
                                            {.criterion = torch::nn::MSELoss()}});
  expect_compared<SchedulerCallback>(std::vector<SchedulerCallbackOptions>{{}, {.metric = key}});
  expect_compared<EarlyStoppingCallback>(std::vector<EarlyStoppingCallbackOptions>{
      {}, {.patience = 3}, {.metric = key}, {.minimize = true}, {.min_delta = 0.1}});
  expect_compared<CheckpointCallback>(
      std::vector<CheckpointCallbackOptions>{{},
                                             {.metric = key},
                                             {.minimize = false},
                                             {.save_n_best = 3},
                                             {.save_every_batches = 2},
                                             {.mode = CheckpointMode::kModel}});
  expect_compared<FreezeCallback>(
      std::vector<FreezeCallbackOptions>{{.names = {"0.*"}},
                                         {.names = {"1.*"}},
                                         {.names = {"0.*"}, .from_epoch = 2},
                                         {.names = {"0.*"}, .epochs = 2}});
  expect_compared<PeriodicLoaderCallback>(std::vector<PeriodicLoaderCallbackOptions>{
      {.every = {{"valid", 2}}}, {.every = {{"valid", 3}}}, {.every = {{"test", 2}}}});
  expect_compared<BatchOverfitCallback>(std::vector<BatchOverfitCallbackOptions>{
      {}, {.batches = {{"train", std::int64_t{1}}}}, {.batches = {{"train", 1.0}}}});
  expect_compared<CheckRunCallback>(
      std::vector<CheckRunCallbackOptions>{{}, {.num_batches = 2}, {.num_epochs = 2}});
  expect_compared<LRFinderCallback>(std::vector<LRFinderCallbackOptions>{
      {}, {.first_lr = 1e-3}, {.final_lr = 2}, {.num_steps = 5}, {.scale = LRScale::kLinear}});
  expect_compared<AccuracyCallback>(std::vector<AccuracyCallbackOptions>{
      {}, {.input_key = "other"}, {.topk = {2}}, {.num_classes = 2}});
  expect_compared<PrecisionRecallF1SupportCallback>(
      std::vector<PrecisionRecallF1SupportCallbackOptions>{
          {.num_classes = 2}, {.num_classes = 3}, {.num_classes = 2, .zero_division = 1}});
  expect_compared<AUCCallback>(std::vector<AUCCallbackOptions>{{}, {.target_key = "other"}});
  expect_compared<ConfusionMatrixCallback>(
      std::vector<ConfusionMatrixCallbackOptions>{{.num_classes = 2}, {.num_classes = 3}});
}

TEST(Agreement, ComparesTheOptionsOfCallbacksThatHoldOthersOrFunctions) {
  const auto nothing = [](State&) {};
  const auto flow = [](const CheckRunCallbackOptions& held,
                       const ControlFlowCallbackOptions& options) {
    return with_callback(std::make_shared<ControlFlowCallback>(CheckRunCallback(held), options));
  };
  const std::string plain = flow({}, {.every = 2});
  EXPECT_EQ(flow({}, {.every = 2}), plain);
  EXPECT_NE(flow({}, {.every = 3}), plain);
  EXPECT_NE(flow({}, {.loaders = {"train"}, .every = 2}), plain);
  EXPECT_NE(flow({}, {.every = 2, .loader_epochs = {{"train", {1}}}}), plain);
  EXPECT_NE(flow({.num_epochs = 9}, {.every = 2}), plain);
  const auto lambda = [](const LambdaCallback& callback) {
    return with_callback(std::make_shared<LambdaCallback>(callback));
  };
  EXPECT_EQ(lambda(on_step(nothing)), lambda(on_step(nothing)));
  EXPECT_NE(lambda(on_step(nothing)), lambda(on_step(nothing).every(2)));
  EXPECT_NE(lambda(on_step(nothing)), lambda(on_step(nothing).once()));
}

// Two callbacks of one name do not hide each other.
TEST(Agreement, TheOptionsOfAUsersCallbackAreComparedAndNamed) {
  struct Scaled : toy::Hooks {
    explicit Scaled(double factor) : factor(factor) {}
    std::string name() const override { return "Scaled"; }
    std::string agreed_options() const override {
      return OptionText().with("factor", factor).str();
    }
    double factor;
  };
  const auto agreed = [](double first) {
    Agreement agreement;
    std::istringstream lines(text([&](Plan& p) {
      p.callbacks = {std::make_shared<Scaled>(first), std::make_shared<Scaled>(2)};
    }));
    for (std::string line; std::getline(lines, line);) {
      agreement.emplace_back(line.substr(0, line.find('=')), line.substr(line.find('=') + 1));
    }
    return agreement;
  };
  EXPECT_EQ(complaint({agreed(1), agreed(0.5)}),
            "ranks disagree about the callback 1 (Scaled): rank 0 has factor=1, rank 1 has "
            "factor=0.5; start every rank with the same options");
}

}  // namespace
}  // namespace lockstep

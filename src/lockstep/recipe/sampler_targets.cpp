// Samplers that need more than the size of a data set, and data sets that are made of others.
#include <variant>

#include "lockstep/data/balanced_sampler.h"
#include "lockstep/data/concat.h"
#include "lockstep/data/labels.h"
#include "lockstep/data/length_sampler.h"
#include "lockstep/data/merge.h"
#include "lockstep/data/mini_epoch_sampler.h"
#include "lockstep/data/partitioned.h"
#include "lockstep/data/subset_sampler.h"
#include "lockstep/data/weighted_sampler.h"
#include "lockstep/recipe/targets.h"
#include "lockstep/recipe/values.h"

namespace lockstep::config {

template <>
struct EnumNames<data::BalanceMode> {
  static constexpr std::pair<data::BalanceMode, const char*> names[] = {
      {data::BalanceMode::kMin, "min"}, {data::BalanceMode::kMax, "max"}};
};

template <>
struct EnumNames<data::MiniEpochShuffle> {
  static constexpr std::pair<data::MiniEpochShuffle, const char*> names[] = {
      {data::MiniEpochShuffle::kNone, "none"},
      {data::MiniEpochShuffle::kPerEpoch, "per_epoch"},
      {data::MiniEpochShuffle::kPerMiniEpoch, "per_mini_epoch"}};
};

// min, max, or a number of samples.
template <>
struct Value<std::variant<data::BalanceMode, std::int64_t>> {
  using T = std::variant<data::BalanceMode, std::int64_t>;
  static std::string type() { return "min or max or integer"; }
  static T read(const Node& node) {
    if (node.is_scalar() && node.is_plain()) {
      if (const auto integer = parse_int(node.text())) return *integer;
    }
    return Value<data::BalanceMode>::read(node);
  }
  static std::string show(const T& value) {
    return std::visit([](auto held) { return Value<decltype(held)>::show(held); }, value);
  }
};

}  // namespace lockstep::config

namespace lockstep::recipe {
namespace {

const data::Dataset& dataset_of(const SampledData& sampled) {
  if (sampled.dataset == nullptr) {
    throw ConfigError("expected a data set to take labels or lengths from, got only its size");
  }
  return *sampled.dataset;
}

// The options of a sampler, and the key of what it needs to know of each sample.
template <typename Options>
struct Keyed {
  Options options;
  std::string key = "targets";
};

template <typename Options>
std::vector<config::Field<Keyed<Options>>> keyed(const std::vector<config::Field<Options>>& fields,
                                                 const char* key_help) {
  std::vector<config::Field<Keyed<Options>>> made;
  for (const auto& field : fields) made.push_back(field.inside(&Keyed<Options>::options));
  made.push_back({"key", &Keyed<Options>::key, key_help});
  return made;
}

// A sampler of the class `Sampled` that is made of the labels of the data set.
template <typename Sampled, typename Options>
void add_by_labels(Targets& targets, const std::string& name, const std::string& about,
                   const std::vector<config::Field<Options>>& fields) {
  targets.samplers.add<Keyed<Options>>(name, about, keyed(fields, "of the class in a sample"),
                                       [](const Keyed<Options>& o, const SampledData& sampled) {
                                         return std::make_shared<const Sampled>(
                                             data::labels_of(dataset_of(sampled), o.key),
                                             o.options);
                                       });
}

constexpr const char* kSeedHelp = "of the order; each epoch has another one";

void add_balanced(Targets& targets) {
  using B = data::BalanceClassOptions;
  add_by_labels<data::BalanceClassSampler, B>(
      targets, "BalanceClassSampler", "Equally many samples of each class.",
      {{"mode", &B::mode, "as many as the smallest or largest class has, or how many"},
       {"seed", &B::seed, kSeedHelp}});
  using P = data::BatchBalanceClassOptions;
  add_by_labels<data::BatchBalanceClassSampler, P>(
      targets, "BatchBalanceClassSampler", "Batches with equally many samples of some classes.",
      {{"num_classes", &P::num_classes, "of a batch"},
       {"num_samples", &P::num_samples, "of each of these classes"},
       {"num_batches", &P::num_batches, "of an epoch; default: as many as the data set fills"},
       {"seed", &P::seed, kSeedHelp}});
  using D = data::DynamicBalanceClassOptions;
  add_by_labels<data::DynamicBalanceClassSampler, D>(
      targets, "DynamicBalanceClassSampler", "Classes become equally frequent over the epochs.",
      {{"exp_lambda", &D::exp_lambda, "how slowly, between 0 and 1"},
       {"start_epoch", &D::start_epoch, "begin as if so many epochs were over"},
       {"max_d", &D::max_d, "of the most frequent class to the rarest one, at most"},
       {"samples", &D::samples, "of an epoch; default: as many as the data set has"},
       {"seed", &D::seed, kSeedHelp}});
}

struct WeightedRecipe {
  data::WeightedRandomOptions options;
  std::vector<double> class_weights;
  std::string key = "targets";
};

void add_weighted(Targets& targets) {
  using R = WeightedRecipe;
  using W = data::WeightedRandomOptions;
  std::vector<config::Field<R>> fields = {
      config::required("class_weights", &R::class_weights, "of the classes 0, 1, …"),
      {"key", &R::key, "of the class in a sample"}};
  for (const auto& field : std::vector<config::Field<W>>{
           {"samples", &W::samples, "of an epoch; default: as many as the data set has"},
           {"replacement", &W::replacement, "a sample may come several times in an epoch"},
           {"seed", &W::seed, kSeedHelp}}) {
    fields.push_back(field.inside(&R::options));
  }
  targets.samplers.add<R>("WeightedRandomSampler",
                          "Draws samples with the weights of their classes.", fields,
                          [](const R& o, const SampledData& sampled) {
                            const auto labels = data::labels_of(dataset_of(sampled), o.key);
                            return std::make_shared<const data::WeightedRandomSampler>(
                                data::weights_by_class(labels, o.class_weights), o.options);
                          });
}

void add_mini_epochs(Targets& targets) {
  using M = data::MiniEpochOptions;
  targets.samplers.add<M>(
      "MiniEpochSampler", "Short epochs: the next samples of a large data set.",
      {config::required("mini_epoch_length", &M::mini_epoch_length, "samples of an epoch"),
       {"drop_last", &M::drop_last, "leave out a last part that is not full"},
       {"shuffle", &M::shuffle, "when the data set gets another order"},
       {"seed", &M::seed, "of the order"}},
      [](const M& o, std::int64_t size) {
        return std::make_shared<const data::MiniEpochSampler>(size, o);
      });
}

struct LengthRecipe {
  std::string key = "features";
  std::optional<std::int64_t> batch_size;
  std::int64_t batches_per_pool = data::LengthSamplerOptions().batches_per_pool;
  std::uint64_t seed = 0;
};

void add_lengths(Targets& targets) {
  using L = LengthRecipe;
  targets.samplers.add<L>(
      "LengthSampler", "Batches of samples of similar lengths, so that padding is short.",
      {{"key", &L::key, "of the sequence in a sample"},
       {"batch_size", &L::batch_size, "of all shards; default: the loader's"},
       {"batches_per_pool", &L::batches_per_pool, "batches among which samples are sorted"},
       {"seed", &L::seed, kSeedHelp}},
      [](const L& o, const SampledData& sampled) {
        return std::make_shared<const data::LengthSampler>(
            data::lengths_of(dataset_of(sampled), o.key),
            data::LengthSamplerOptions{.batch_size = o.batch_size.value_or(sampled.batch_size),
                                       .batches_per_pool = o.batches_per_pool,
                                       .seed = o.seed});
      });
}

struct SubsetRandomRecipe {
  std::vector<std::int64_t> indices;
  std::uint64_t seed = 0;
};

void add_subset_sampler(Targets& targets) {
  using S = SubsetRandomRecipe;
  targets.samplers.add<S>("SubsetRandomSampler", "Some samples, in another order each epoch.",
                          {config::required("indices", &S::indices, "of the samples"),
                           {"seed", &S::seed, "the epoch is added to it"}},
                          [](const S& o, std::int64_t size) {
                            for (const std::int64_t index : o.indices) {
                              if (index >= size) {
                                throw ConfigError("indices: expected 0 to {}, got {}", size - 1,
                                                  index);
                              }
                            }
                            return std::make_shared<const data::SubsetRandomSampler>(
                                o.indices, data::RandomSamplerOptions{.seed = o.seed});
                          });
}

struct DatasetsOptions {
  std::vector<data::DatasetPtr> datasets;
};

void add_joined_datasets(Targets& targets) {
  using O = DatasetsOptions;
  targets.datasets.add<O>("Concat", "Several data sets, one after the other.",
                          {config::required("datasets", &O::datasets, "in their order")},
                          [](const O& o) { return data::concat(o.datasets); });
  targets.datasets.add<O>(
      "Merge", "Several data sets side by side: a sample has the keys of all.",
      {config::required("datasets", &O::datasets, "of equal sizes; a later one's keys win")},
      [](const O& o) { return data::merge(o.datasets); });
}

struct PartitionRecipe {
  data::DatasetPtr dataset;
  std::int64_t part = 0;
  std::int64_t parts = 1;
  std::optional<std::int64_t> samples;
};

void add_partitioned(Targets& targets) {
  using P = PartitionRecipe;
  targets.datasets.add<P>(
      "Partitioned", "Data of which this host has one part; for the PartitionSampler.",
      {config::required("dataset", &P::dataset, "the part that this host has"),
       config::required("part", &P::part, "its number, from 0 on"),
       config::required("parts", &P::parts, "how many there are"),
       {"samples", &P::samples, "that are used of each part; default: all, if parts are equal"}},
      [](const P& o) {
        return data::partitioned(
            {.parts = o.parts, .here = {{o.part, o.dataset}}, .samples = o.samples});
      });
  using S = data::PartitionSamplerOptions;
  targets.samplers.add<S>("PartitionSampler",
                          "Each shard reads the part of the data that its host has.",
                          {{"shuffle", &S::shuffle, "another order of each part in each epoch"},
                           {"seed", &S::seed, "of the order"}},
                          [](const S& o, const SampledData& sampled) {
                            const auto* const parts =
                                dynamic_cast<const data::PartitionedDataset*>(&dataset_of(sampled));
                            if (parts == nullptr) {
                              throw ConfigError(
                                  "expected a Partitioned data set in the loader, got another one; "
                                  "if Partitioned is inside of it, put it around the others");
                            }
                            return parts->sampler(o);
                          });
}

}  // namespace

void add_sampler_targets(Targets& targets) {
  add_balanced(targets);
  add_weighted(targets);
  add_mini_epochs(targets);
  add_lengths(targets);
  add_subset_sampler(targets);
  add_joined_datasets(targets);
  add_partitioned(targets);
}

}  // namespace lockstep::recipe

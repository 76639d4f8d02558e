// Data sets around other data sets.
#include "lockstep/data/cache.h"
#include "lockstep/data/transformed.h"
#include "lockstep/recipe/targets.h"
#include "lockstep/recipe/values.h"

namespace lockstep::recipe {
namespace {

struct TransformedRecipe {
  data::DatasetPtr dataset;
  data::TransformedOptions options;
};

struct CachedRecipe {
  data::DatasetPtr dataset;
  data::CacheOptions options;
};

}  // namespace

void add_loading(Targets& targets) {
  using T = TransformedRecipe;
  using O = data::TransformedOptions;
  std::vector<config::Field<T>> transformed{
      config::required("dataset", &T::dataset, "the other one")};
  for (const auto& field :
       std::vector<config::Field<O>>{{"transform", &O::transform, "of the tensors under keys"},
                                     {"keys", &O::keys, "all of them are changed by the same draw"},
                                     {"masks", &O::masks, "tensors of classes that move with them"},
                                     {"target_transform", &O::target_transform, "of targets"}}) {
    transformed.push_back(field.inside(&T::options));
  }
  targets.datasets.add<T>("Transformed", "Another data set with transforms.", transformed,
                          [](const T& o) { return data::transformed(o.dataset, o.options); });
  using C = CachedRecipe;
  std::vector<config::Field<C>> cached{config::required("dataset", &C::dataset, "the other one")};
  cached.push_back(config::Field<data::CacheOptions>("memory", &data::CacheOptions::memory,
                                                     "bytes for samples, at most")
                       .inside(&C::options));
  targets.datasets.add<C>(
      "Cached", "Another data set, whose samples are kept in memory that workers share.", cached,
      [](const C& o) -> data::DatasetPtr { return data::cached(o.dataset, o.options); });
}

}  // namespace lockstep::recipe

#include "lockstep/metric/loader_function.h"

#include <cmath>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::metric {

LoaderFunction::LoaderFunction(LoaderFunctionOptions options) : options_(std::move(options)) {
  if (options_.name.empty()) throw ConfigError("LoaderFunction: name: expected a name, got ''");
  if (!options_.function) {
    throw ConfigError("LoaderFunction '{}': function: expected a function, got none",
                      options_.name);
  }
}

Metrics LoaderFunction::compute() const {
  if (rows_.empty()) return {{options_.name, std::nan("")}};
  const LoaderRows::All all = rows_.all();
  return {{options_.name, options_.function(all.outputs, all.targets)}};
}

}  // namespace lockstep::metric

#include "lockstep/recipe/sequential.h"
#include "lockstep/recipe/targets.h"
#include "lockstep/recipe/values.h"

namespace lockstep::recipe {
namespace {

struct SequentialOptions {
  config::Node layers;
};

struct TorchScriptOptions {
  std::filesystem::path path;
};

}  // namespace

void add_models(Targets& targets) {
  using S = SequentialOptions;
  targets.models.add<S>(
      "Sequential", "Layers one after the other; a plain list means the same.",
      {config::required("layers", &S::layers, "one after the other").named("list of layer")},
      [](const S& o, const Example& example) {
        return Model(make_sequential(o.layers, example.input));
      });
  using T = TorchScriptOptions;
  targets.models.add<T>("TorchScript", "A model that Python saved with torch.jit.save.",
                        {config::required("path", &T::path, "of the file")},
                        [](const T& o) { return Model::script(o.path); });
}

}  // namespace lockstep::recipe

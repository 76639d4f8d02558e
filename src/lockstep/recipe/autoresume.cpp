#include <filesystem>

#include "lockstep/checkpoint/store.h"
#include "lockstep/recipe/recipe.h"

namespace lockstep::recipe {

void autoresume(Recipe& recipe, const std::string& checkpoint) {
  std::optional<std::size_t> last;  // the last stage that an earlier run has started
  for (std::size_t i = 0; i < recipe.stages.size(); ++i) {
    const TrainOptions& options = recipe.stages[i].options;
    if (!options.logdir) throw ConfigError("autoresume: needs the logdir of the earlier run");
    if (std::filesystem::exists(checkpoint::folder_in(*options.logdir) / "last.pth")) last = i;
  }
  if (!last) return;
  TrainOptions& options = recipe.stages[*last].options;
  const auto saved = checkpoint::load_by_name("last", checkpoint::folder_in(*options.logdir));
  const auto run = saved.state.get<StateDict>("run");
  const bool more = *last + 1 < recipe.stages.size();
  auto first = recipe.stages.begin() + static_cast<std::ptrdiff_t>(*last);
  const bool finished =
      options.num_steps
          ? run.get_or("update_step", run.get<std::int64_t>("batch_step")) >= *options.num_steps
          : run.get<std::int64_t>("epoch") >= options.num_epochs;
  if (finished && more) {
    options.model.load_state(saved.state.get<StateDict>("model_state_dict"));
    ++first;
  } else {
    // If the stage had stopped early, it stops again immediately.
    options.resume = checkpoint;
  }
  recipe.stages.erase(recipe.stages.begin(), first);
}

}  // namespace lockstep::recipe

// Training in stages: one run after another, each with its own options, and each with the weights
// of the one before.
//
//   ls::TrainOptions warm_up = …, fine_tuning = …;
//   runner.train_stages({{"warm_up", warm_up}, {"fine_tuning", fine_tuning}});
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/train/options.h"

namespace lockstep {

struct Stage {
  std::string name;      // "" only if it is the only stage
  TrainOptions options;  // without a model or models: those of the stage before
};

struct StagesOptions {
  // "last" or "best": continue an earlier run in the same logdir, if there is one. Finished stages
  // are skipped. The stage after them is resumed from that checkpoint, or starts with their weights
  // if it had not begun.
  std::optional<std::string> resume = {};
};

// Whether a folder can have this name.
bool is_stage_name(std::string_view name);

// Throws ConfigError if there is no stage, or if names are missing, wrong or there twice.
void check_stages(const std::vector<Stage>& stages);

// The options that train() gets: logs and checkpoints are in logdir/<name>.
TrainOptions options_of(const Stage& stage);

// Gives a stage without a model or models those of the stage before it.
void share_models(std::vector<Stage>& stages);

// Changes the stages to those that are left of an earlier run, as StagesOptions::resume says.
// Throws ConfigError if a stage has no logdir, and CheckpointError if the earlier run has saved
// weights only. If a launcher has started several processes, this is
// collective: rank 0 looks at its disk and decides for all. `engine` is that of the first stage.
void resume_stages(std::vector<Stage>& stages, const std::string& checkpoint,
                   Engine* engine = nullptr);

}  // namespace lockstep

// All public headers, for users: #include <lockstep/lockstep.h>. Lockstep's own files never include
// this one.
#pragma once

#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/base/metrics.h"
#include "lockstep/base/text.h"
#include "lockstep/callback/batch_overfit.h"
#include "lockstep/callback/check_run.h"
#include "lockstep/callback/checkpoint.h"
#include "lockstep/callback/classification.h"
#include "lockstep/callback/confusion_matrix.h"
#include "lockstep/callback/control_flow.h"
#include "lockstep/callback/criterion.h"
#include "lockstep/callback/early_stopping.h"
#include "lockstep/callback/lr_finder.h"
#include "lockstep/callback/progress_bar.h"
#include "lockstep/callback/scheduler.h"
#include "lockstep/callback/timer.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/data/loaders.h"
#include "lockstep/data/mnist.h"
#include "lockstep/data/sampler.h"
#include "lockstep/data/subset.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/data/transform.h"
#include "lockstep/dist/dist.h"
#include "lockstep/dist/distributed_model.h"
#include "lockstep/engine/distributed.h"
#include "lockstep/engine/engine.h"
#include "lockstep/log/console_logger.h"
#include "lockstep/log/csv_logger.h"
#include "lockstep/log/tensorboard_logger.h"
#include "lockstep/metric/accuracy.h"
#include "lockstep/metric/additive.h"
#include "lockstep/metric/auc.h"
#include "lockstep/metric/confusion_matrix.h"
#include "lockstep/metric/precision_recall.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/scheduler.h"
#include "lockstep/process/environment.h"
#include "lockstep/runner/runner.h"
#include "lockstep/runner/supervised.h"
#include "lockstep/state/hash.h"
#include "lockstep/train/checkpointer.h"
#include "lockstep/train/merge.h"
#include "lockstep/train/plan.h"

// The component `science`, if it is installed.
#if __has_include("lockstep/science.h")
#include "lockstep/science.h"
#endif

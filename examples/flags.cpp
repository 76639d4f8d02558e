#include "flags.h"

#include <cstdlib>

#include <CLI/CLI.hpp>

lockstep::Callbacks Flags::callbacks() const {
  lockstep::Callbacks all;
  if (logdir) all.add(lockstep::CheckpointCallback({.save_every_batches = save_every}));
  return all;
}

Flags read_flags(int argc, char** argv, const std::string& about, std::int64_t epochs,
                 const std::vector<TextFlag>& more) {
  Flags flags{.epochs = epochs};
  CLI::App app(about);
  app.add_option("--epochs", flags.epochs, "Number of epochs, including those before --resume")
      ->capture_default_str();
  app.add_option("--workers", flags.workers,
                 "Processes that train together; default: one per GPU, else per core");
  app.add_option("--shards", flags.shards,
                 "Parts of every batch; results depend on them, not on the workers; "
                 "default: one per worker");
  app.add_option("--max-restarts", flags.max_restarts,
                 "How many times workers are made anew after one was lost")
      ->capture_default_str();
  app.add_option("--wire", flags.wire,
                 "How gradients are summed and sent: fp32, or bf16 in half the bytes")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
  auto* const folder =
      app.add_option("--logdir", flags.logdir, "Folder for logs, checkpoints and summary.json");
  app.add_option("--resume", flags.resume,
                 "Checkpoint to continue from: a path, or last or best in --logdir");
  app.add_option("--save-every", flags.save_every,
                 "Also save last.pth every N batches; 0: only at the end of epochs")
      ->needs(folder)
      ->capture_default_str();
  app.add_option("--precision", flags.precision, "Of the forward pass and loss: fp32, bf16, fp16")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}))
      ->capture_default_str();
  for (const TextFlag& flag : more) app.add_option(flag.name, flag.value, flag.help);
  app.add_flag("--quiet", flags.quiet, "Show no progress bar");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    constexpr int kWrongUsage = 2;  // a launcher does not start the program again after this code
    std::exit(app.exit(error) == 0 ? 0 : kWrongUsage);
  }
  return flags;
}

// An optimizer in Python goes on from the state of ours, and ours from that of Python's.
#include <cstdlib>
#include <fstream>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "lockstep/checkpoint/file.h"
#include "tests/optim/problem.h"

namespace lockstep::optim {
namespace {

using namespace testing;
namespace fs = std::filesystem;

// The parameters and gradients are those of tests/optim/problem.h. For each case, Python continues
// our run after step 9 and compares the weights after step 30 with ours. Then it trains the same
// steps by itself and writes its state after step 9.
constexpr const char* kProgram = R"(
import copy, sys, torch
folder = sys.argv[1]
names, shapes = ["weight", "bias", "scale"], [(3, 5), (7,), (1,)]
def add_grads(params, step):
    for index, p in enumerate(params):
        values = [((7 * i + 13 * step + step * step + 5 * index) % 17 - 8) / 2 ** (3 + i % 4)
                  for i in range(p.numel())]
        p.grad = torch.tensor(values, dtype=p.dtype).reshape(p.shape)
def start():
    return [torch.nn.Parameter(torch.tensor(
        [((5 * i + 3 * index + 3) % 11 - 5) / 8 for i in range(torch.Size(shape).numel())],
        dtype=torch.float64).reshape(shape)) for index, shape in enumerate(shapes)]
def run(params, optimizer, first, last):
    for step in range(first, last + 1):
        add_grads(params, step)
        optimizer.step()
def saved(params):
    return {name: p.detach().clone() for name, p in zip(names, params)}
def plain(params): return params
def grouped(params):
    return [{"params": [params[0], params[2]]},
            {"params": [params[1]], "lr": 0.005, "weight_decay": 0.0}]
o = torch.optim
cases = {
    "SGD": (o.SGD, dict(lr=0.1, weight_decay=0.01), plain),
    "SGD-momentum": (o.SGD, dict(lr=0.1, momentum=0.9, dampening=0.5), plain),
    "SGD-nesterov": (o.SGD, dict(lr=0.1, momentum=0.9, nesterov=True), plain),
    "Adam": (o.Adam, dict(lr=0.02, weight_decay=0.1), plain),
    "Adam-amsgrad": (o.Adam, dict(lr=0.02, betas=(0.8, 0.99), amsgrad=True), plain),
    "AdamW": (o.AdamW, dict(lr=0.02), plain),
    "AdamW-groups": (o.AdamW, dict(lr=0.02, weight_decay=0.5), grouped),
    "RMSprop": (o.RMSprop, dict(lr=0.02), plain),
    "RMSprop-centered": (o.RMSprop, dict(lr=0.02, momentum=0.5, centered=True), plain),
    "Adagrad": (o.Adagrad, dict(lr=0.1, lr_decay=0.1, initial_accumulator_value=0.5), plain),
    "RAdam": (o.RAdam, dict(lr=0.02), plain),
    "NAdam": (o.NAdam, dict(lr=0.02), plain),
    "Adamax": (o.Adamax, dict(lr=0.02), plain),
    "Adadelta": (o.Adadelta, dict(lr=0.5), plain),
}
bad = []
def compare(name, what, ours, theirs, tolerance=1e-12):
    for key, value in theirs.items():
        error = ((ours[key] - value).abs() / (value.abs() + 0.05)).max().item()
        if not error <= tolerance: bad.append(f"{name}: {what}: {key} differs by {error}")
for name, (make, options, arrange) in cases.items():
    file = torch.load(f"{folder}/ours-{name}.pth")
    params = start()
    with torch.no_grad():
        for p, key in zip(params, names): p.copy_(file["model_state_dict"][key])
    optimizer = make(arrange(params), lr=123)
    # PyTorch 2 takes the tensors that it is given, and its steps change them.
    optimizer.load_state_dict(copy.deepcopy(file["optimizer_state_dict"]))
    run(params, optimizer, 10, 30)
    # NAdam of PyTorch 1.13 counts one factor of the momentum twice.
    tolerance = 0.1 if name == "NAdam" and torch.__version__ < "2" else 1e-12
    compare(name, "after our file", file["later"], saved(params), tolerance)
    params = start()
    optimizer = make(arrange(params), **options)
    run(params, optimizer, 1, 9)
    state = {"model_state_dict": saved(params), "optimizer_state_dict": optimizer.state_dict()}
    theirs, ours = optimizer.state_dict(), file["optimizer_state_dict"]
    for number, kinds in theirs["state"].items():
        for kind, value in kinds.items():
            if value is None: continue
            mine = ours["state"][number][kind]
            compare(name, f"state of {number}", {kind: mine}, {kind: torch.as_tensor(value)}, 1e-6)
    for group, mine in zip(theirs["param_groups"], ours["param_groups"]):
        for key in ("lr", "betas", "weight_decay", "momentum", "params"):
            if key in group and list([group[key]] if not isinstance(group[key], (list, tuple)) else group[key]) != \
                    list([mine[key]] if not isinstance(mine[key], list) else mine[key]):
                bad.append(f"{name}: {key}: {mine[key]}, expected {group[key]}")
    # torch.save copies when it writes, so later steps do not change the file.
    torch.save(state, f"{folder}/theirs-{name}.pth")
    run(params, optimizer, 10, 30)
    # In a file of NAdam the product of the momenta is a float32.
    tolerance = max(tolerance, 1e-10) if name == "NAdam" else tolerance
    torch.save({"later": saved(params), "tolerance": tolerance}, f"{folder}/theirs-{name}-later.pth")
assert not bad, "\n".join(bad)
)";

std::vector<std::pair<std::string, OptimizerSpec>> cases() {
  return {
      {"SGD", SGD{.lr = 0.1, .weight_decay = 0.01}},
      {"SGD-momentum", SGD{.lr = 0.1, .momentum = 0.9, .dampening = 0.5}},
      {"SGD-nesterov", SGD{.lr = 0.1, .momentum = 0.9, .nesterov = true}},
      {"Adam", Adam{.lr = 0.02, .weight_decay = 0.1}},
      {"Adam-amsgrad", Adam{.lr = 0.02, .beta1 = 0.8, .beta2 = 0.99, .amsgrad = true}},
      {"AdamW", AdamW{.lr = 0.02}},
      {"AdamW-groups",
       {AdamW{.lr = 0.02, .weight_decay = 0.5},
        {{.names = "bias", .lr = 0.005, .weight_decay = 0}}}},
      {"RMSprop", RMSprop{.lr = 0.02}},
      {"RMSprop-centered", RMSprop{.lr = 0.02, .momentum = 0.5, .centered = true}},
      {"Adagrad", Adagrad{.lr = 0.1, .lr_decay = 0.1, .initial_accumulator_value = 0.5}},
      {"RAdam", RAdam{.lr = 0.02}},
      {"NAdam", NAdam{.lr = 0.02}},
      {"Adamax", Adamax{.lr = 0.02}},
      {"Adadelta", Adadelta{.lr = 0.5}},
  };
}

StateDict weights_of(const Problem& problem) {
  StateDict weights;
  for (const auto& [name, parameter] : problem.parameters()) {
    weights.set(name, parameter.detach().clone());
  }
  return weights;
}

// Options that no case has, so that those of the file must be taken. Only the kind and the settings
// are the same.
OptimizerSpec with_other_lr(const OptimizerSpec& spec) {
  return std::visit(
      [&](auto options) -> OptimizerSpec {
        if constexpr (requires { OptimizerSpec(options, spec.settings()); }) {
          std::vector<ParameterSettings> settings = spec.settings();
          for (auto& one : settings) {
            if (one.lr) one.lr = *one.lr * 50;
          }
          options.lr *= 50;
          return {options, settings};
        } else {
          return spec;
        }
      },
      spec.choice());
}

TEST(PythonOptimizer, GoesOnFromOurFileAndOursFromItsFile) {
  if (std::system("/usr/bin/python3 -c 'import torch' 2>/dev/null") != 0) {
    GTEST_SKIP() << "Python cannot import torch; install python3-torch";
  }
  const TemporaryDirectory folder;
  for (const auto& [name, spec] : cases()) {
    Training training(spec, torch::kFloat64);
    training.run(1, 9);
    StateDict file{{"model_state_dict", weights_of(training.problem)},
                   {"optimizer_state_dict", training.optimizer->state()}};
    training.run(10, 30);
    file.set("later", weights_of(training.problem));
    checkpoint::save(folder / ("ours-" + name + ".pth"), file);
  }
  std::ofstream(folder / "check.py") << kProgram;
  const std::string command =
      fmt::format("/usr/bin/python3 {} {}", (folder / "check.py").string(), folder.path().string());
  ASSERT_EQ(std::system(command.c_str()), 0);
  for (const auto& [name, spec] : cases()) {
    SCOPED_TRACE(name);
    const StateDict file = checkpoint::read(folder / ("theirs-" + name + ".pth")).state;
    const auto weights = file.get<StateDict>("model_state_dict");
    Training training(with_other_lr(spec), torch::kFloat64);
    {
      const torch::NoGradGuard no_grad;
      for (const auto& [key, parameter] : training.problem.parameters()) {
        parameter.copy_(weights.get<torch::Tensor>(key));
      }
    }
    training.optimizer->load_state(file.get<StateDict>("optimizer_state_dict"));
    training.run(10, 30);
    const StateDict end = checkpoint::read(folder / ("theirs-" + name + "-later.pth")).state;
    const auto later = end.get<StateDict>("later");
    for (const auto& [key, parameter] : training.problem.parameters()) {
      const torch::Tensor theirs = later.get<torch::Tensor>(key).flatten();
      expect_close(parameter.detach().flatten(),
                   {theirs.data_ptr<double>(), theirs.data_ptr<double>() + theirs.numel()},
                   end.get<double>("tolerance"));
    }
  }
}

}  // namespace
}  // namespace lockstep::optim

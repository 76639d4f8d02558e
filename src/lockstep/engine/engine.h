// Where and how the arithmetic of a run happens.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <torch/types.h>

namespace lockstep {

class Engine {
 public:
  virtual ~Engine() = default;

  virtual torch::Device device() const = 0;

  // Processes that train together.
  virtual std::int64_t workers() const = 0;

  // Called once by the run before it touches the model.
  virtual void start() = 0;
};

struct DeviceEngineOptions {
  std::optional<torch::Device> device;  // default: the first GPU, else the CPU
  std::optional<int> threads;           // for arithmetic inside an operation; default: LibTorch's
};

// One process, one device.
class DeviceEngine : public Engine {
 public:
  explicit DeviceEngine(DeviceEngineOptions options = {});

  torch::Device device() const override { return device_; }
  std::int64_t workers() const override { return 1; }
  void start() override;

 private:
  torch::Device device_;
  std::optional<int> threads_;
};

}  // namespace lockstep

// Copies of a device that is always late, on the CPU. They note in which order they are used, and
// can fail.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/train/device_copies.h"

namespace lockstep {

class LateCopies : public DeviceCopies {
 public:
  std::unique_ptr<LateTensor> read(const torch::Tensor& tensor) override {
    events.emplace_back("read");
    return std::make_unique<Tensor>(*this, tensor);
  }

  std::unique_ptr<ArrivingBatch> send(const Batch& batch) override {
    events.emplace_back("send");
    return std::make_unique<Arriving>(*this, batch);
  }

  // "read" and "send" when a copy begins, "wait" and "take" when it is used.
  std::vector<std::string> events;
  std::string error;  // if not empty, waiting for a tensor throws it

 private:
  class Tensor : public LateTensor {
   public:
    Tensor(LateCopies& copies, const torch::Tensor& tensor)
        : copies_(copies), values_(tensor.detach().clone()) {}

    const torch::Tensor& get() override {
      copies_.events.emplace_back("wait");
      if (!copies_.error.empty()) throw Error("{}", copies_.error);
      return values_;
    }

   private:
    LateCopies& copies_;
    torch::Tensor values_;
  };

  class Arriving : public ArrivingBatch {
   public:
    // A copy, because the memory of the batch may be used again.
    Arriving(LateCopies& copies, const Batch& batch) : copies_(copies) {
      for (const auto& [key, tensor] : batch) batch_.set(key, tensor.clone());
    }

    Batch take() override {
      copies_.events.emplace_back("take");
      return std::move(batch_);
    }

   private:
    LateCopies& copies_;
    Batch batch_;
  };
};

}  // namespace lockstep

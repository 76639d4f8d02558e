#include <lockstep/metric/accuracy.h>
#include <torch/types.h>

int main() {
  lockstep::metric::Accuracy accuracy({.topk = {1}});
  accuracy.update(torch::eye(3), torch::arange(3));
  return accuracy.compute().at("accuracy01") == 1.0 ? 0 : 1;
}

#include <lockstep/lockstep.h>

int main() {
  lockstep::SupervisedRunner().train(lockstep::TrainOptions{.modle = {}, .num_epochs = 2});
}

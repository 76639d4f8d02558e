#include <lockstep/command/command.h>

#include "@NAME@.h"

int main(int argc, char** argv) {
  @NAMESPACE@::add_targets();
  return lockstep::command_main(argc, argv);
}

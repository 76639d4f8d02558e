#include <lockstep/command/command.h>

int main(int argc, char** argv) {
  return lockstep::command_main(argc, argv);
}

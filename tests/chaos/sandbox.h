// What separates the runs of lockstep_chaos from the rest of the machine, as far as it may: mounts
// of its own, a small disk, two hosts with a link. All of it needs root and ends with this process.
#pragma once

#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/file.h"
#include "lockstep/process/child_process.h"

namespace lockstep::chaos {

struct StartOptions {
  std::vector<std::string> command;  // the program, searched for in PATH, and its arguments
  std::map<std::string, std::string> variables = {};  // added to this process's environment
  std::filesystem::path output = "/dev/null";
  std::filesystem::path error = "/dev/null";
  int network = -1;             // a network namespace; -1: that of this process
  std::vector<int> cores = {};  // that the program may use; empty: all
};

// Starts a program in a session of its own, with an empty standard input and signals at their
// defaults. It is killed when this process ends. This process must not have threads.
process::ChildProcess start_program(const StartOptions& options);

// From now on mounts are seen only by this process and its children, and /dev/shm is empty. Returns
// why this is not possible.
std::optional<std::string> enter_private_mounts();

// From now on this process and its children have a loopback network of their own, so the ports of
// other programs are not seen. Returns whether this is possible.
bool enter_private_network();

// A file system of a few megabytes. It needs private mounts.
class SmallDisk {
 public:
  explicit SmallDisk(std::filesystem::path folder);
  ~SmallDisk();
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  // Takes all free space, and gives it back.
  void fill() const;
  void empty() const;

 private:
  std::filesystem::path folder_;
};

// Two network namespaces with a link between them.
class HostPair {
 public:
  static constexpr char kAddress0[] = "10.205.0.1";

  // Throws Error that says why they cannot be made.
  HostPair();

  // The namespace of host 0 or 1.
  int network(int host) const { return networks_[static_cast<std::size_t>(host)].get(); }
  // Takes the end of the link that `host` has down or up.
  void set_link(int host, bool up) const;

 private:
  std::array<FileDescriptor, 2> networks_;
};

// The TCP addresses on which processes of this user listen, by the inode of the socket, in a
// network namespace (-1: that of this process).
std::map<std::string, std::string> listening_ports(int network = -1);

// Whether a process of this machine has the socket with this inode.
bool is_held(const std::string& inode);

}  // namespace lockstep::chaos

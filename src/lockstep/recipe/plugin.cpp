#include "lockstep/recipe/plugin.h"

#include <set>

#include <dlfcn.h>

#include "lockstep/base/file.h"

namespace lockstep::recipe {
namespace {

// Makes the path absolute: dlopen() searches a name without a slash only in the system's folders.
std::filesystem::path resolve(const std::filesystem::path& path) {
  std::error_code error;
  const auto absolute = std::filesystem::canonical(path, error);
  if (error) throw ConfigError("plugin {}: {}", path.string(), error.message());
  return absolute;
}

template <typename Function>
Function* symbol(void* library, const char* name, const std::filesystem::path& path) {
  if (void* const found = dlsym(library, name)) return reinterpret_cast<Function*>(found);
  throw ConfigError("plugin {}: expected a library with LOCKSTEP_PLUGIN, it has no {}",
                    path.string(), name);
}

}  // namespace

std::string plugin_version() {
  return LOCKSTEP_VERSION;
}

void load_plugin(const std::filesystem::path& path) {
  // Static because a library is loaded into the process, and would add its names twice.
  static std::set<std::filesystem::path> loaded;
  const auto file = resolve(path);
  if (loaded.contains(file)) return;
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw ConfigError("plugin {}", dlerror());
  const std::string version = symbol<const char*()>(library, "lockstep_plugin_for", path)();
  if (version != plugin_version()) {
    throw ConfigError("plugin {}: built for Lockstep {}, this is {}", path.string(), version,
                      plugin_version());
  }
  const auto add_targets = symbol<void(Targets&)>(library, "lockstep_plugin", path);
  reading<ConfigError>({.path = path, .kind = "plugin"}, [&] { add_targets(targets()); });
  loaded.insert(file);
}

}  // namespace lockstep::recipe

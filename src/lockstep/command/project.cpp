#include "lockstep/command/project.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"

namespace lockstep::command {
namespace {

namespace fs = std::filesystem;

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

void check_name(const std::string& name) {
  const auto fits = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-'; };
  constexpr std::size_t kLongest = 64;
  if (name.empty() || name.size() > kLongest ||
      std::isalpha(static_cast<unsigned char>(name[0])) == 0 || !std::ranges::all_of(name, fits)) {
    throw ConfigError(
        "name: expected letters, digits, - and _, beginning with a letter, at most {} of them, got "
        "'{}'",
        kLongest, name);
  }
  // CMake's own targets, our files, and words that have a meaning in C++ or LibTorch.
  static const std::set<std::string> taken = {
      "all",           "test",      "install",   "clean",     "help",     "package",  "edit_cache",
      "rebuild_cache", "main",      "backend",   "data",      "tests",    "build",    "project",
      "lockstep",      "torch",     "at",        "c10",       "caffe2",   "std",      "fmt",
      "alignas",       "alignof",   "and",       "asm",       "auto",     "bool",     "break",
      "case",          "catch",     "char",      "class",     "concept",  "const",    "consteval",
      "constexpr",     "constinit", "continue",  "decltype",  "default",  "delete",   "do",
      "double",        "else",      "enum",      "explicit",  "export",   "extern",   "false",
      "float",         "for",       "friend",    "goto",      "if",       "inline",   "int",
      "long",          "mutable",   "namespace", "new",       "noexcept", "not",      "nullptr",
      "operator",      "or",        "private",   "protected", "public",   "register", "requires",
      "return",        "short",     "signed",    "sizeof",    "static",   "struct",   "switch",
      "template",      "this",      "throw",     "true",      "try",      "typedef",  "typeid",
      "typename",      "union",     "unsigned",  "using",     "virtual",  "void",     "volatile",
      "while",         "xor"};
  if (taken.contains(lower(name))) {
    throw ConfigError("name: '{}' is a reserved word; choose another name", name);
  }
}

// "my-net" as a C++ type: MyNet.
std::string class_name(const std::string& name) {
  std::string made;
  bool upper = true;
  for (const char c : name) {
    if (c == '-' || c == '_') {
      upper = true;
      continue;
    }
    made += upper ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    upper = false;
  }
  return made;
}

std::string filled(std::string_view content, const std::map<std::string, std::string>& values) {
  std::string text(content);
  for (const auto& [key, value] : values) {
    const std::string placeholder = "@" + key + "@";
    for (std::size_t at = 0; (at = text.find(placeholder, at)) != std::string::npos;) {
      text.replace(at, placeholder.size(), value);
      at += value.size();
    }
  }
  return text;
}

}  // namespace

fs::path find_package_folder() {
  const fs::path program = fs::read_symlink("/proc/self/exe");
  const fs::path prefix = program.parent_path().parent_path();
  std::vector<fs::path> candidates = {prefix};  // a build tree: build/bin/lockstep
  for (const char* const lib : {"lib", "lib64"})
    candidates.push_back(prefix / lib / "cmake/lockstep");
  std::error_code error;
  if (fs::is_directory(prefix / "lib", error)) {
    for (const auto& entry :
         fs::directory_iterator(prefix / "lib", error)) {  // lib/x86_64-linux-gnu
      candidates.push_back(entry.path() / "cmake/lockstep");
    }
  }
  for (const fs::path& candidate : candidates) {
    if (fs::exists(candidate / "lockstepConfig.cmake", error)) return candidate;
  }
  throw ConfigError(
      "{}: found no lockstepConfig.cmake in its build tree or installation; install Lockstep again",
      program.string());
}

fs::path create_project(const ProjectOptions& options) {
  check_name(options.name);
  const std::string name = lower(options.name);
  const fs::path folder = options.parent / name;
  if (fs::exists(folder)) throw ConfigError("{}: exists already", folder.string());
  const fs::path package = options.package ? *options.package : find_package_folder();

  std::string identifier = name;
  std::ranges::replace(identifier, '-', '_');
  const std::map<std::string, std::string> values = {
      {"NAME", name},
      {"NAMESPACE", identifier},
      {"CLASS", class_name(options.name)},
      {"LOCKSTEP", package.string()},
      {"TRAIN", options.with_backend ? "train" : "run -C config.yml --distributed"},
      {"ROWS", options.with_backend
                   ? "| `" + name +
                         ".h` | the data and the network: yours to edit |\n"
                         "| `backend.h` | the training backend, to customise |\n"
                   : "| `" + name + ".h` | the data, the model and the runner: yours to edit |\n"},
  };
  // Made in another folder and then renamed, so that a full disk leaves no incomplete project.
  const fs::path aside = options.parent / fmt::format(".{}.new", name);
  fs::remove_all(aside);
  try {
    const std::string kind = options.with_backend ? "gtb" : "plain";
    for (const Template& file : templates()) {
      // "common/Makefile" is for every project, "gtb/backend.h" for one kind.
      const fs::path source(file.path);
      if (*source.begin() != "common" && *source.begin() != kind) continue;
      fs::path path = source.lexically_relative(*source.begin());
      if (path == "project.h") path = name + ".h";
      if (path == "gitignore") path = ".gitignore";
      make_directories((aside / path).parent_path());
      write_file_atomically(aside / path, filled(file.content, values));
      if (path.extension() == ".sh") {
        fs::permissions(aside / path,
                        fs::perms::owner_exec | fs::perms::group_exec | fs::perms::others_exec,
                        fs::perm_options::add);
      }
    }
    fs::rename(aside, folder);
  } catch (...) {
    std::error_code error;
    fs::remove_all(aside, error);
    throw;
  }
  return folder;
}

}  // namespace lockstep::command

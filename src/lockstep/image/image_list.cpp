#include "lockstep/image/image_list.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/source/csv_rows.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

std::string lower_case(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

bool has_extension(const fs::path& path, const std::vector<std::string>& extensions) {
  const std::string extension = lower_case(path.extension().string());
  return std::ranges::any_of(extensions, [&](const std::string& wanted) {
    return extension == fmt::format("{}{}", wanted.starts_with('.') ? "" : ".", lower_case(wanted));
  });
}

std::string looked_for(const ClassFolders& folders) {
  return "files that end with ." + join(folders.extensions, ", .");
}

// The images below a folder: first those in it, then those of each folder below it.
std::vector<fs::path> images_below(const fs::path& folder,
                                   const std::vector<std::string>& extensions) {
  std::vector<std::pair<std::string, std::string>> found;  // folder, name
  for (const fs::directory_entry& entry :
       fs::recursive_directory_iterator(folder, fs::directory_options::follow_directory_symlink)) {
    if (!has_extension(entry.path(), extensions) || !entry.is_regular_file()) continue;
    found.emplace_back(entry.path().parent_path().string(), entry.path().filename().string());
  }
  std::ranges::sort(found);
  std::vector<fs::path> paths;
  paths.reserve(found.size());
  for (const auto& [parent, name] : found) paths.push_back(fs::path(parent) / name);
  return paths;
}

std::vector<std::string> folders_in(const fs::path& root) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(root)) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> class_folders(const ClassFolders& folders) {
  if (!fs::is_directory(folders.root)) {
    throw DataError("root: there is no folder {}", folders.root.string());
  }
  std::vector<std::string> found = folders_in(folders.root);
  if (found.empty()) {
    throw DataError(
        "root: {} has no folders; expected one folder per class with its images in it ({}), or a "
        "csv with paths and labels",
        folders.root.string(), looked_for(folders));
  }
  const std::vector<std::string>& known = folders.train_classes;
  const auto is_known = [&](const std::string& name) {
    return known.empty() || std::ranges::find(known, name) != known.end();
  };
  for (const std::string& name : folders.classes.empty() ? found : folders.classes) {
    if (is_known(name)) continue;
    throw DataError(
        "root: the folder '{}' of {} is not one of the {} classes of the training data; {}; set "
        "classes to the folders to use",
        name, folders.root.string(), known.size(), suggest(name, known));
  }
  for (const std::string& name : folders.classes) {
    if (std::ranges::find(found, name) != found.end()) continue;
    throw DataError("classes: {} has no folder '{}'; {}", folders.root.string(), name,
                    suggest(name, found));
  }
  if (!known.empty()) return known;
  return folders.classes.empty() ? found : folders.classes;
}

void check_classes(const std::vector<std::string>& classes) {
  const std::set<std::string> unique(classes.begin(), classes.end());
  if (unique.size() != classes.size()) {
    throw ConfigError("classes: expected different names, got {}", join(classes, ", "));
  }
}

// A row of a table, and the line in which it begins, for messages.
struct TableLine {
  std::vector<std::string> cells;
  std::int64_t number = 0;
};

// Image tables follow the rules of all other tables, RFC 4180. In particular a quote inside a cell
// without quotes is an error: it may be a path or a mistake, and quoted cells can say either.
std::vector<TableLine> read_lines(const fs::path& csv) {
  const std::string text = read_file(csv);
  std::string_view table = text;
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (table.starts_with(kByteOrderMark)) table.remove_prefix(kByteOrderMark.size());
  CsvRows rows(table, ',');
  std::vector<TableLine> lines;
  std::vector<std::string_view> cells;
  while (rows.next(cells)) {
    lines.push_back({.cells = {cells.begin(), cells.end()}, .number = rows.line()});
  }
  return lines;
}

struct TableColumns {
  std::size_t path = 0;
  std::size_t label = 1;
  std::size_t count = 2;
};

// Where paths and labels are. The first line is removed if it has the names of columns.
TableColumns find_columns(std::vector<TableLine>& lines) {
  if (lines.empty()) throw DataError("expected lines with a path and a label, got an empty file");
  const std::vector<std::string>& first = lines.front().cells;
  const auto place = [&](const char* name) {
    return static_cast<std::size_t>(
        std::ranges::find_if(first, [&](const auto& cell) { return lower_case(cell) == name; }) -
        first.begin());
  };
  const TableColumns named{.path = place("path"), .label = place("label"), .count = first.size()};
  if (named.path < first.size() && named.label < first.size()) {
    lines.erase(lines.begin());
    return named;
  }
  if (first.size() == 2) return {};
  throw DataError(
      "line {}: expected the columns 'path' and 'label', or two columns without names, got {}",
      lines.front().number, list_some(first));
}

std::optional<std::int64_t> as_integer(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "0", "1", … up to the largest label.
std::vector<std::string> numbered_classes(const std::vector<TableLine>& lines,
                                          const TableColumns& columns) {
  constexpr std::int64_t kMostClasses = 1 << 20;
  std::int64_t count = 0;
  for (const TableLine& line : lines) {
    const std::int64_t label = *as_integer(line.cells[columns.label]);
    if (label < 0 || label >= kMostClasses) {
      throw DataError("line {}: label: expected 0 to {}, got {}", line.number, kMostClasses - 1,
                      label);
    }
    count = std::max(count, label + 1);
  }
  std::vector<std::string> classes;
  for (std::int64_t i = 0; i < count; ++i) classes.push_back(std::to_string(i));
  return classes;
}

std::vector<std::string> classes_of(const std::vector<TableLine>& lines,
                                    const TableColumns& columns) {
  const bool integers = std::ranges::all_of(lines, [&](const TableLine& line) {
    return as_integer(line.cells[columns.label]).has_value();
  });
  if (integers) return numbered_classes(lines, columns);
  std::set<std::string> labels;
  for (const TableLine& line : lines) labels.insert(line.cells[columns.label]);
  return {labels.begin(), labels.end()};
}

// The number of a label: that of its name, or the label itself.
std::int64_t target_of(const TableLine& line, const std::string& label,
                       const std::vector<std::string>& classes,
                       const std::map<std::string, std::int64_t>& numbers) {
  if (const auto found = numbers.find(label); found != numbers.end()) return found->second;
  const auto number = as_integer(label);
  if (number && *number >= 0 && *number < static_cast<std::int64_t>(classes.size())) return *number;
  throw DataError("line {}: label: '{}' is not among the classes; {}", line.number, label,
                  suggest(label, classes));
}

}  // namespace

ImageList list_class_folders(const ClassFolders& folders) {
  check_classes(folders.classes);
  check_classes(folders.train_classes);
  if (folders.extensions.empty()) {
    throw ConfigError("extensions: expected at least one, got none");
  }
  ImageList list{.classes = class_folders(folders)};
  const auto is_wanted = [&](const std::string& name) {
    if (!folders.classes.empty()) {
      return std::ranges::find(folders.classes, name) != folders.classes.end();
    }
    return fs::is_directory(folders.root / name);
  };
  std::vector<std::string> empty;
  for (std::size_t i = 0; i < list.classes.size(); ++i) {
    if (!is_wanted(list.classes[i])) continue;
    const fs::path folder = folders.root / list.classes[i];
    const auto paths = images_below(folder, folders.extensions);
    if (paths.empty()) empty.push_back(list.classes[i]);
    for (const fs::path& path : paths) {
      list.images.push_back({.path = path, .target = static_cast<std::int64_t>(i)});
    }
  }
  if (list.images.empty()) {
    throw DataError("root: no image is in {} and its folders {}; looked for {}",
                    folders.root.string(), list_some(list.classes), looked_for(folders));
  }
  if (!empty.empty() && !folders.allow_empty) {
    throw DataError(
        "root: {} has no image in {}; looked for {}; set allow_empty to keep classes without "
        "images",
        folders.root.string(), list_some(empty), looked_for(folders));
  }
  return list;
}

ImageList list_unlabelled(const ClassFolders& folders) {
  if (!fs::is_directory(folders.root)) {
    throw DataError("root: there is no folder {}", folders.root.string());
  }
  ImageList list{.classes = folders.train_classes};
  for (const fs::path& path : images_below(folders.root, folders.extensions)) {
    list.images.push_back({.path = path});
  }
  if (list.images.empty()) {
    throw DataError("root: no image is in {}; looked for {}", folders.root.string(),
                    looked_for(folders));
  }
  return list;
}

ImageList list_image_table(const ImageTable& table) {
  check_classes(table.classes);
  return reading<DataError>({.path = table.csv, .kind = "csv:"}, [&] {
    std::vector<TableLine> lines = read_lines(table.csv);
    const TableColumns columns = find_columns(lines);
    if (lines.empty()) throw DataError("expected lines with a path and a label, got none");
    for (const TableLine& line : lines) {
      if (line.cells.size() == columns.count) continue;
      throw DataError("line {}: expected {} cells, got {}", line.number, columns.count,
                      line.cells.size());
    }
    const fs::path root = table.root.empty() ? table.csv.parent_path() : table.root;
    ImageList list{.classes = table.classes.empty() ? classes_of(lines, columns) : table.classes};
    std::map<std::string, std::int64_t> numbers;
    for (const std::string& name : list.classes) {
      numbers.emplace(name, static_cast<std::int64_t>(numbers.size()));
    }
    for (const TableLine& line : lines) {
      const std::string& path = line.cells[columns.path];
      if (path.empty()) throw DataError("line {}: path: expected a path, got none", line.number);
      list.images.push_back(
          {.path = root / path,
           .target = target_of(line, line.cells[columns.label], list.classes, numbers)});
    }
    return list;
  });
}

}  // namespace lockstep::data

#include "lockstep/science/hdf5.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>

#include <fcntl.h>
#include <fmt/ranges.h>
// Debian 12 has HDF5 1.10, Debian 13 has 1.14. Without this, some names would mean newer functions
// in 1.14.
#define H5_USE_110_API
#include <hdf5.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"

namespace lockstep::science {
namespace {

namespace fs = std::filesystem;

// An identifier of HDF5's, closed by the function that belongs to its kind.
class Handle {
 public:
  using Close = herr_t (*)(hid_t);
  Handle(hid_t id, Close close) : id_(id), close_(close) {}
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  hid_t get() const { return id_; }
  explicit operator bool() const { return id_ >= 0; }

 private:
  hid_t id_;
  Close close_;
};

// A lock: one thread at a time uses HDF5. HDF5 may be built without support for threads, and the
// list of open files below needs a lock in any case. While the lock is held, HDF5 does not print
// its own errors, because our messages say more.
class Turn {
 public:
  Turn() : lock_(mutex()) {
    H5Eget_auto2(H5E_DEFAULT, &print_, &data_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  ~Turn() { H5Eset_auto2(H5E_DEFAULT, print_, data_); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  static std::mutex& mutex() {
    static std::mutex mutex;
    return mutex;
  }

  std::lock_guard<std::mutex> lock_;
  H5E_auto2_t print_ = nullptr;
  void* data_ = nullptr;
};

std::vector<hsize_t> to_sizes(const std::vector<std::int64_t>& values) {
  return {values.begin(), values.end()};
}

// How numbers of a tensor are stored. `tensor`: the type that they are converted to before.
struct StoredType {
  torch::ScalarType tensor;
  hid_t file;
  hid_t memory;
};

std::optional<StoredType> stored_as(torch::ScalarType type) {
  switch (type) {
    case torch::kFloat16:
    case torch::kBFloat16:
    case torch::kFloat32:
      return StoredType{torch::kFloat32, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT};
    case torch::kFloat64:
      return StoredType{torch::kFloat64, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE};
    case torch::kBool:
    case torch::kUInt8:
      return StoredType{torch::kUInt8, H5T_STD_U8LE, H5T_NATIVE_UINT8};
    case torch::kInt8:
      return StoredType{torch::kInt8, H5T_STD_I8LE, H5T_NATIVE_INT8};
    case torch::kInt16:
      return StoredType{torch::kInt16, H5T_STD_I16LE, H5T_NATIVE_INT16};
    case torch::kInt32:
      return StoredType{torch::kInt32, H5T_STD_I32LE, H5T_NATIVE_INT32};
    case torch::kInt64:
      return StoredType{torch::kInt64, H5T_STD_I64LE, H5T_NATIVE_INT64};
    default:
      return std::nullopt;
  }
}

// The type of the tensor that these numbers become. LibTorch 1.13 has no unsigned integers of more
// than a byte: the next larger signed type is taken, and for 64 bits the same size.
torch::ScalarType tensor_type(hid_t type) {
  const std::size_t bytes = H5Tget_size(type);
  if (H5Tget_class(type) == H5T_FLOAT) return bytes <= 4 ? torch::kFloat32 : torch::kFloat64;
  const bool is_signed = H5Tget_sign(type) != H5T_SGN_NONE;
  if (bytes == 1) return is_signed ? torch::kInt8 : torch::kUInt8;
  if (bytes == 2) return is_signed ? torch::kInt16 : torch::kInt32;
  return bytes <= 4 && is_signed ? torch::kInt32 : torch::kInt64;
}

// The members of a compound or an enumeration, in quotes.
std::string members_of(hid_t type) {
  std::vector<std::string> names;
  const int count = H5Tget_nmembers(type);
  for (int i = 0; i < count; ++i) {
    char* const name = H5Tget_member_name(type, static_cast<unsigned>(i));
    if (name == nullptr) continue;
    names.push_back(fmt::format("'{}'", name));
    H5free_memory(name);
  }
  constexpr std::size_t kShown = 8;
  if (names.size() > kShown) {
    names.resize(kShown);
    names.emplace_back("…");
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

// A type that cannot be read, and advice for it.
std::string describe_type(hid_t type) {
  switch (H5Tget_class(type)) {
    case H5T_ENUM:
      return fmt::format(
          "an enumeration of {} (h5py stores bool in this way); store its numbers as integers",
          members_of(type));
    case H5T_COMPOUND:
      return fmt::format("a compound of {}; store each of them as a dataset of its own",
                         members_of(type));
    case H5T_STRING:
      return "text; store numbers in its place";
    case H5T_ARRAY:
      return "arrays as elements; store them as further dimensions of the dataset";
    case H5T_VLEN:
      return "rows of different lengths; store rows of one length";
    case H5T_REFERENCE:
      return "references to other objects of the file; name these objects instead";
    case H5T_BITFIELD:
      return "a bit field; store it as integers";
    case H5T_OPAQUE:
      return "opaque bytes; store them as integers";
    case H5T_TIME:
      return "times; store them as integers or floats";
    default:
      return "a type that HDF5 does not know; is the file damaged?";
  }
}

herr_t collect_name(hid_t group, const char* name, const H5L_info_t*, void* data) {
  H5O_info_t info;
  if (H5Oget_info_by_name(group, name, &info, H5P_DEFAULT) >= 0 && info.type == H5O_TYPE_DATASET) {
    static_cast<std::vector<std::string>*>(data)->emplace_back(name);
  }
  return 0;
}

std::vector<std::string> names_in(hid_t file) {
  std::vector<std::string> names;
  H5Literate(file, H5_INDEX_NAME, H5_ITER_INC, nullptr, collect_name, &names);
  return names;
}

// A larger cache keeps decompressed chunks, because neighbouring cubes need the same chunks. HDF5's
// default is one megabyte, and another size can only be set when a dataset is opened.
void set_chunk_cache(hid_t dataset, hid_t access) {
  const Handle layout(H5Dget_create_plist(dataset), H5Pclose);
  if (H5Pget_layout(layout.get()) != H5D_CHUNKED) return;
  hsize_t sides[H5S_MAX_RANK];
  const int rank = H5Pget_chunk(layout.get(), H5S_MAX_RANK, sides);
  const Handle type(H5Dget_type(dataset), H5Tclose);
  std::size_t chunk = H5Tget_size(type.get());
  for (int i = 0; i < rank; ++i) chunk *= sides[i];
  constexpr std::size_t kBytes = 32 << 20;
  constexpr std::size_t kSlots = 12'421;  // a prime: chunks are found by a hash
  H5Pset_chunk_cache(access, kSlots, std::max(kBytes, chunk), H5D_CHUNK_CACHE_W0_DEFAULT);
}

hid_t open_dataset(hid_t file, const char* name) {
  const Handle access(H5Pcreate(H5P_DATASET_ACCESS), H5Pclose);
  {
    const Handle plain(H5Dopen2(file, name, H5P_DEFAULT), H5Dclose);
    if (!plain) return -1;
    set_chunk_cache(plain.get(), access.get());
  }
  return H5Dopen2(file, name, access.get());
}

class Hdf5Dataset {
 public:
  Hdf5Dataset(hid_t file, const fs::path& path, const std::string& name)
      : id_(open_dataset(file, name.c_str()), H5Dclose),
        where_(fmt::format("{}: dataset '{}'", path.string(), name)) {
    if (!id_) {
      throw DataError("{}: there is none of this name; {}", where_, suggest(name, names_in(file)));
    }
    const Handle type(H5Dget_type(id_.get()), H5Tclose);
    const H5T_class_t kind = H5Tget_class(type.get());
    if (kind != H5T_FLOAT && kind != H5T_INTEGER) {
      throw DataError("{}: expected numbers (integers or floats), got {}", where_,
                      describe_type(type.get()));
    }
    const Handle space(H5Dget_space(id_.get()), H5Sclose);
    const int rank = H5Sget_simple_extent_ndims(space.get());
    if (rank < 0) throw DataError("{}: has no shape", where_);
    std::vector<hsize_t> sizes(static_cast<std::size_t>(rank));
    H5Sget_simple_extent_dims(space.get(), sizes.data(), nullptr);
    check_sizes(sizes, H5Tget_size(type.get()));
    shape_.assign(sizes.begin(), sizes.end());
    type_ = tensor_type(type.get());
  }

  const std::vector<std::int64_t>& shape() const { return shape_; }
  torch::ScalarType type() const { return type_; }

  // Reads each run of rows that follow each other at once, the first ones first, so that a chunk is
  // unpacked once.
  torch::Tensor read_rows(std::span<const std::int64_t> rows) const {
    std::vector<std::size_t> order(rows.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return rows[i]; });
    check_rows(rows);
    std::vector<std::int64_t> sizes = shape_;
    sizes[0] = static_cast<std::int64_t>(rows.size());
    torch::Tensor values = allocate(sizes, type_);
    if (values.numel() == 0) return values;
    const std::size_t row_bytes = values.nbytes() / rows.size();
    std::vector<char> run;  // rows in the order of the file
    for (std::size_t begin = 0; begin < order.size();) {
      std::size_t end = begin + 1;
      bool is_in_order = true;  // the run is in the result as it is in the file
      while (end < order.size() && rows[order[end]] <= rows[order[end - 1]] + 1) {
        is_in_order = is_in_order && order[end] == order[end - 1] + 1 &&
                      rows[order[end]] == rows[order[end - 1]] + 1;
        ++end;
      }
      const std::int64_t first = rows[order[begin]];
      const std::int64_t count = rows[order[end - 1]] - first + 1;
      if (is_in_order) {
        read_run(first, count, static_cast<char*>(values.data_ptr()) + order[begin] * row_bytes);
        begin = end;
        continue;
      }
      run.resize(static_cast<std::size_t>(count) * row_bytes);
      read_run(first, count, run.data());
      for (; begin < end; ++begin) {
        const auto from = static_cast<std::size_t>(rows[order[begin]] - first) * row_bytes;
        std::memcpy(static_cast<char*>(values.data_ptr()) + order[begin] * row_bytes,
                    run.data() + from, row_bytes);
      }
    }
    return values;
  }

  torch::Tensor read_all_rows() const {
    if (shape_.empty()) throw DataError("{}: expected rows, got a single number", where_);
    torch::Tensor values = allocate(shape_, type_);
    if (values.numel() > 0) read_run(0, shape_[0], static_cast<char*>(values.data_ptr()));
    return values;
  }

  torch::Tensor read(const Block& block) const {
    check(block);
    const Handle space(H5Dget_space(id_.get()), H5Sclose);
    const auto start = to_sizes(block.start), count = to_sizes(block.count),
               stride = to_sizes(block.stride);
    torch::Tensor values = allocate(block.count, torch::kFloat32);
    if (values.numel() == 0) return values;
    if (!shape_.empty()) {
      H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), stride.data(), count.data(),
                          nullptr);
    }
    const Handle memory(H5Screate_simple(static_cast<int>(count.size()), count.data(), nullptr),
                        H5Sclose);
    if (H5Dread(id_.get(), H5T_NATIVE_FLOAT, memory.get(), space.get(), H5P_DEFAULT,
                values.data_ptr<float>()) < 0) {
      throw DataError("{}: cannot be read: the file is damaged or cut short", where_);
    }
    return values;
  }

 private:
  // Sizes of a damaged file may be huge. Numbers that lie in one piece, without compression, must
  // be in the file. Chunks may be packed, or not stored at all, so there only the sum is limited.
  void check_sizes(const std::vector<hsize_t>& sizes, std::size_t number_bytes) const {
    constexpr auto kMost = static_cast<double>(std::numeric_limits<std::int64_t>::max() / 2);
    double bytes = static_cast<double>(std::max<std::size_t>(number_bytes, sizeof(double)));
    for (const hsize_t size : sizes) bytes *= static_cast<double>(std::max<hsize_t>(size, 1));
    if (bytes > kMost) {
      throw DataError("{}: has shape [{}], which is more than a file can hold; it is damaged",
                      where_, fmt::join(sizes, ", "));
    }
    const Handle layout(H5Dget_create_plist(id_.get()), H5Pclose);
    const haddr_t offset = H5Dget_offset(id_.get());
    if (H5Pget_layout(layout.get()) != H5D_CONTIGUOUS || offset == HADDR_UNDEF) return;
    std::uint64_t needed = number_bytes;
    for (const hsize_t size : sizes) needed *= size;
    // A link may lead to another file than the one that was opened.
    const Handle file(H5Iget_file_id(id_.get()), H5Fclose);
    hsize_t length = 0;
    if (H5Fget_filesize(file.get(), &length) < 0) return;
    if (offset <= length && needed <= length - offset) return;
    throw DataError(
        "{}: has shape [{}], which needs {} bytes from byte {} on, but the file has {}; it is "
        "damaged or cut short",
        where_, fmt::join(sizes, ", "), needed, offset, length);
  }

  torch::Tensor allocate(const std::vector<std::int64_t>& sizes, torch::ScalarType type) const {
    try {
      return torch::empty(sizes, type);
    } catch (const c10::Error&) {
      throw DataError("{}: there is not enough memory for [{}] of its shape [{}]", where_,
                      fmt::join(sizes, ", "), fmt::join(shape_, ", "));
    }
  }

  void check_rows(std::span<const std::int64_t> rows) const {
    if (shape_.empty()) throw DataError("{}: expected rows, got a single number", where_);
    for (const std::int64_t row : rows) {
      if (row >= 0 && row < shape_[0]) continue;
      throw DataError("{}: has shape [{}]; row {} is not in it", where_, fmt::join(shape_, ", "),
                      row);
    }
  }

  void read_run(std::int64_t first, std::int64_t count, char* out) const {
    std::vector<hsize_t> start(shape_.size(), 0);
    std::vector<hsize_t> sizes = to_sizes(shape_);
    start[0] = static_cast<hsize_t>(first);
    sizes[0] = static_cast<hsize_t>(count);
    const Handle space(H5Dget_space(id_.get()), H5Sclose);
    const Handle memory(H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr),
                        H5Sclose);
    if (H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), nullptr, sizes.data(),
                            nullptr) < 0 ||
        H5Dread(id_.get(), stored_as(type_)->memory, memory.get(), space.get(), H5P_DEFAULT, out) <
            0) {
      throw DataError("{}: rows {} to {} cannot be read: the file is damaged or cut short", where_,
                      first, first + count - 1);
    }
  }

  void check(const Block& block) const {
    const std::size_t rank = shape_.size();
    if (block.start.size() != rank || block.count.size() != rank || block.stride.size() != rank) {
      throw DataError("{}: expected a block of {} dimensions, got one of {}", where_, rank,
                      block.start.size());
    }
    for (std::size_t i = 0; i < rank; ++i) {
      const std::int64_t last = block.start[i] + (block.count[i] - 1) * block.stride[i];
      if (block.start[i] < 0 || block.count[i] < 0 || block.stride[i] < 1 || last >= shape_[i]) {
        throw DataError(
            "{}: has shape [{}]; a block from [{}] of [{}] in steps of [{}] is not in it", where_,
            fmt::join(shape_, ", "), fmt::join(block.start, ", "), fmt::join(block.count, ", "),
            fmt::join(block.stride, ", "));
      }
    }
  }

  Handle id_;
  std::string where_;
  std::vector<std::int64_t> shape_;
  torch::ScalarType type_ = torch::kFloat32;
};

// Why HDF5 could not open a file.
std::string reason(const fs::path& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return std::strerror(errno);
  if (fs::is_directory(path)) return "is a folder";
  if (H5Fis_hdf5(path.c_str()) <= 0) return "is not an HDF5 file";
  if (::flock(file.get(), LOCK_SH | LOCK_NB) != 0) return "another program has it open for writing";
  return "is an HDF5 file, but it is damaged";
}

// Identifies a file and its last change, to find out that a path now has another file or content.
struct Version {
  dev_t device = 0;
  ino_t number = 0;
  timespec changed = {};

  explicit Version(const fs::path& path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) return;
    device = status.st_dev;
    number = status.st_ino;
    changed = status.st_mtim;
  }
  bool operator==(const Version& other) const {
    return device == other.device && number == other.number &&
           changed.tv_sec == other.changed.tv_sec && changed.tv_nsec == other.changed.tv_nsec;
  }
};

class OpenFile {
 public:
  explicit OpenFile(fs::path path)
      : path_(std::move(path)),
        version_(path_),
        id_(H5Fopen(path_.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose) {
    if (!id_) throw DataError("{}: {}", path_.string(), reason(path_));
  }

  bool is_current() const { return version_ == Version(path_); }

  std::vector<std::string> names() const { return names_in(id_.get()); }

  const Hdf5Dataset& dataset(const std::string& name) {
    auto& dataset = datasets_[name];
    if (dataset == nullptr) {
      try {
        dataset = std::make_unique<Hdf5Dataset>(id_.get(), path_, name);
      } catch (...) {
        datasets_.erase(name);
        throw;
      }
    }
    return *dataset;
  }

 private:
  fs::path path_;
  Version version_;
  Handle id_;
  std::map<std::string, std::unique_ptr<Hdf5Dataset>> datasets_;  // closed before their file
};

// The open files, the one used last in front. To be used only by a thread that holds a Turn.
class OpenFiles {
 public:
  static OpenFiles& of_this_process() {
    // Never deleted, because HDF5 shuts down before static objects are destroyed.
    static auto* const files = new OpenFiles;
    // A forked process must not use files that its parent opened. All of them are closed before one
    // is opened again. Otherwise HDF5 would return another handle of the file that is open.
    if (files->owner_ != ::getpid()) *files = OpenFiles();
    return *files;
  }

  OpenFile& at(const fs::path& path) {
    const auto found = std::ranges::find(files_, path, &Entry::first);
    if (found != files_.end() && !found->second->is_current()) {
      files_.erase(found);
      return at(path);
    }
    if (found != files_.end()) {
      files_.splice(files_.begin(), files_, found);
    } else {
      files_.emplace_front(path, std::make_unique<OpenFile>(path));
      if (files_.size() > kMost) files_.pop_back();
    }
    return *files_.front().second;
  }

  // Closes the file. Called before it is written again, and when the last reader is gone.
  void forget(const fs::path& path) {
    files_.remove_if([&](const Entry& entry) { return entry.first == path; });
  }

 private:
  using Entry = std::pair<fs::path, std::unique_ptr<OpenFile>>;
  static constexpr std::size_t kMost = 16;

  pid_t owner_ = ::getpid();
  std::list<Entry> files_;
};

OpenFile& opened(const fs::path& path) {
  return OpenFiles::of_this_process().at(path);
}

}  // namespace

// Closes the file when it is destroyed, because another program may want to write to it. Another
// Hdf5File of the same path opens it again when it reads.
struct Hdf5File::Use {
  explicit Use(fs::path used) : path(std::move(used)) {}
  ~Use() {
    const Turn turn;
    OpenFiles::of_this_process().forget(path);
  }
  fs::path path;
};

Hdf5File::Hdf5File(fs::path path)
    : path_(std::move(path)), use_(std::make_shared<const Use>(fs::absolute(path_))) {
  if (!fs::exists(path_)) throw DataError("{}: there is no such file", path_.string());
  reading<DataError>({.path = use_->path}, [&] {
    const Turn turn;
    opened(use_->path);
  });
}

std::vector<std::string> Hdf5File::names() const {
  return reading<DataError>({.path = use_->path}, [&] {
    const Turn turn;
    return opened(use_->path).names();
  });
}

std::vector<std::int64_t> Hdf5File::shape(const std::string& name) const {
  return reading<DataError>({.path = use_->path}, [&] {
    const Turn turn;
    return opened(use_->path).dataset(name).shape();
  });
}

torch::Tensor Hdf5File::read(const std::string& name, const Block& block) const {
  return reading<DataError>({.path = use_->path}, [&] {
    const Turn turn;
    return opened(use_->path).dataset(name).read(block);
  });
}

torch::Tensor Hdf5File::read(const std::string& name) const {
  const auto sizes = shape(name);
  return read(name, {.start = std::vector<std::int64_t>(sizes.size(), 0),
                     .count = sizes,
                     .stride = std::vector<std::int64_t>(sizes.size(), 1)});
}

torch::ScalarType Hdf5File::type(const std::string& name) const {
  return reading<DataError>({.path = use_->path}, [&] {
    const Turn turn;
    return opened(use_->path).dataset(name).type();
  });
}

torch::Tensor Hdf5File::read_rows(const std::string& name,
                                  std::span<const std::int64_t> rows) const {
  return reading<DataError>({.path = use_->path}, [&] {
    const Turn turn;
    return opened(use_->path).dataset(name).read_rows(rows);
  });
}

torch::Tensor Hdf5File::read_rows(const std::string& name) const {
  return reading<DataError>({.path = use_->path}, [&] {
    const Turn turn;
    return opened(use_->path).dataset(name).read_all_rows();
  });
}

void write_hdf5(const fs::path& path,
                const std::vector<std::pair<std::string, torch::Tensor>>& datasets) {
  const Turn turn;
  const fs::path aside = path.string() + fmt::format(".{}.new", ::getpid());
  const auto fail = [&](const std::string& what) {
    std::error_code ignored;
    fs::remove(aside, ignored);
    throw DataError("{}: {} cannot be written", path.string(), what);
  };
  {
    const Handle file(H5Fcreate(aside.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose);
    if (!file) fail("the file");
    for (const auto& [name, tensor] : datasets) {
      const torch::Tensor values = tensor.detach().cpu().contiguous();
      const bool twofold = values.scalar_type() == torch::kFloat64;
      if (!twofold && values.scalar_type() != torch::kFloat32)
        fail(name + ", which is not float or double,");
      const auto sizes = to_sizes(values.sizes().vec());
      const Handle space(H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr),
                         H5Sclose);
      const Handle dataset(
          H5Dcreate2(file.get(), name.c_str(), twofold ? H5T_IEEE_F64LE : H5T_IEEE_F32LE,
                     space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
          H5Dclose);
      if (!dataset || H5Dwrite(dataset.get(), twofold ? H5T_NATIVE_DOUBLE : H5T_NATIVE_FLOAT,
                               H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data_ptr()) < 0) {
        fail(name);
      }
    }
  }
  OpenFiles::of_this_process().forget(fs::absolute(path));
  fs::rename(aside, path);
}

struct Hdf5Writer::OpenFile {
  struct OpenDataset {
    OpenDataset(hid_t made, torch::ScalarType given, const StoredType& as,
                std::vector<std::int64_t> sizes)
        : id(made, H5Dclose), type(given), stored(as), shape(std::move(sizes)) {}

    Handle id;
    torch::ScalarType type;
    StoredType stored;
    std::vector<std::int64_t> shape;
    std::int64_t written = 0;
  };

  explicit OpenFile(const fs::path& path)
      : aside(path.string() + fmt::format(".{}.new", ::getpid())),
        file(std::make_unique<Handle>(
            H5Fcreate(aside.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose)) {}

  fs::path aside;  // the name until the file is complete
  std::unique_ptr<Handle> file;
  std::map<std::string, std::unique_ptr<OpenDataset>> datasets;  // closed before the file
};

Hdf5Writer::Hdf5Writer(fs::path path) : path_(std::move(path)) {
  const Turn turn;
  open_ = std::make_unique<OpenFile>(path_);
  if (*open_->file) return;
  open_.reset();
  throw DataError("{}: the file cannot be created", path_.string());
}

Hdf5Writer::~Hdf5Writer() {
  if (open_ == nullptr) return;
  const Turn turn;
  const fs::path aside = open_->aside;
  open_.reset();
  std::error_code ignored;
  fs::remove(aside, ignored);
}

void Hdf5Writer::add(const std::string& name, torch::ScalarType type,
                     const std::vector<std::int64_t>& shape) {
  const auto stored = stored_as(type);
  if (!stored) {
    throw DataError("{}: dataset '{}': expected real numbers, integers or bool, got {}",
                    path_.string(), name, c10::toString(type));
  }
  if (shape.empty()) {
    throw DataError("{}: dataset '{}': expected an array with rows", path_.string(), name);
  }
  const Turn turn;
  const auto sizes = to_sizes(shape);
  const Handle space(H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr),
                     H5Sclose);
  auto dataset = std::make_unique<OpenFile::OpenDataset>(
      H5Dcreate2(open_->file->get(), name.c_str(), stored->file, space.get(), H5P_DEFAULT,
                 H5P_DEFAULT, H5P_DEFAULT),
      type, *stored, shape);
  if (!dataset->id) {
    throw DataError("{}: dataset '{}' cannot be created", path_.string(), name);
  }
  open_->datasets[name] = std::move(dataset);
}

void Hdf5Writer::append(const std::string& name, const torch::Tensor& rows) {
  const auto found = open_->datasets.find(name);
  if (found == open_->datasets.end()) {
    throw DataError("{}: there is no dataset '{}' to append to", path_.string(), name);
  }
  OpenFile::OpenDataset& dataset = *found->second;
  const std::int64_t count = rows.dim() > 0 ? rows.size(0) : 0;
  auto expected = dataset.shape;
  expected.front() = count;
  if (rows.scalar_type() != dataset.type || rows.sizes() != torch::IntArrayRef(expected)) {
    throw DataError("{}: dataset '{}': expected rows of {} [{}], got {} [{}]", path_.string(), name,
                    c10::toString(dataset.type), fmt::join(expected, ", "),
                    c10::toString(rows.scalar_type()), fmt::join(rows.sizes().vec(), ", "));
  }
  if (dataset.written + count > dataset.shape.front()) {
    throw DataError("{}: dataset '{}': expected {} rows, got {} or more", path_.string(), name,
                    dataset.shape.front(), dataset.written + count);
  }
  const torch::Tensor values = rows.detach().cpu().to(dataset.stored.tensor).contiguous();
  if (values.numel() > 0) {
    const Turn turn;
    std::vector<hsize_t> start(expected.size(), 0);
    start.front() = static_cast<hsize_t>(dataset.written);
    const auto sizes = to_sizes(expected);
    const Handle target(H5Dget_space(dataset.id.get()), H5Sclose);
    const Handle source(H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr),
                        H5Sclose);
    if (H5Sselect_hyperslab(target.get(), H5S_SELECT_SET, start.data(), nullptr, sizes.data(),
                            nullptr) < 0 ||
        H5Dwrite(dataset.id.get(), dataset.stored.memory, source.get(), target.get(), H5P_DEFAULT,
                 values.data_ptr()) < 0) {
      throw DataError("{}: dataset '{}': rows cannot be written; is the disk full?", path_.string(),
                      name);
    }
  }
  dataset.written += count;
}

void Hdf5Writer::finish() {
  for (const auto& [name, dataset] : open_->datasets) {
    if (dataset->written == dataset->shape.front()) continue;
    throw DataError("{}: dataset '{}': expected {} rows, got {}", path_.string(), name,
                    dataset->shape.front(), dataset->written);
  }
  const Turn turn;
  // The handle closes the file without looking for errors, so everything is written before.
  if (H5Fflush(open_->file->get(), H5F_SCOPE_GLOBAL) < 0) {
    throw DataError("{}: the file cannot be written; is the disk full?", path_.string());
  }
  const fs::path aside = open_->aside;
  open_.reset();
  const FileDescriptor written(::open(aside.c_str(), O_RDONLY | O_CLOEXEC));
  OpenFiles::of_this_process().forget(fs::absolute(path_));
  std::error_code error;
  if (written && ::fsync(written.get()) == 0) {
    fs::rename(aside, path_, error);
  } else {
    error.assign(errno, std::generic_category());
  }
  if (!error) return;
  std::error_code ignored;
  fs::remove(aside, ignored);
  throw DataError("{}: the file cannot be written: {}", path_.string(), error.message());
}

}  // namespace lockstep::science

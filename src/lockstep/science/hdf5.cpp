#include "lockstep/science/hdf5.h"

#include <mutex>

#include <fmt/ranges.h>
// Debian 12 has HDF5 1.10, Debian 13 has 1.14, where some names mean newer functions unless asked.
#define H5_USE_110_API
#include <hdf5.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"

namespace lockstep::science {

namespace hdf5 {

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

}  // namespace hdf5

namespace {

namespace fs = std::filesystem;
using hdf5::Handle;

// Debian's HDF5 is not built for threads.
std::mutex& library() {
  static std::mutex mutex;
  return mutex;
}

// HDF5 prints its own errors unless told not to.
void be_quiet() {
  static const bool quiet = [] {
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    return true;
  }();
  (void)quiet;
}

std::vector<hsize_t> to_sizes(const std::vector<std::int64_t>& values) {
  return {values.begin(), values.end()};
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

}  // namespace

struct Hdf5File::Handles {
  explicit Handles(const std::filesystem::path& path)
      : file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose) {}

  hdf5::Handle file;
  pid_t opened_by = ::getpid();
};

namespace {

class Dataset {
 public:
  Dataset(hid_t file, const fs::path& path, const std::string& name)
      : id_(H5Dopen2(file, name.c_str(), H5P_DEFAULT), H5Dclose),
        where_(fmt::format("{}: dataset '{}'", path.string(), name)) {
    if (!id_) {
      throw DataError("{}: there is none of this name; {}", where_, suggest(name, names_in(file)));
    }
    const Handle type(H5Dget_type(id_.get()), H5Tclose);
    const H5T_class_t kind = H5Tget_class(type.get());
    if (kind != H5T_FLOAT && kind != H5T_INTEGER) {
      throw DataError("{}: expected numbers, got something else", where_);
    }
    const Handle space(H5Dget_space(id_.get()), H5Sclose);
    const int rank = H5Sget_simple_extent_ndims(space.get());
    if (rank < 0) throw DataError("{}: has no shape", where_);
    std::vector<hsize_t> sizes(static_cast<std::size_t>(rank));
    H5Sget_simple_extent_dims(space.get(), sizes.data(), nullptr);
    shape_.assign(sizes.begin(), sizes.end());
  }

  const std::vector<std::int64_t>& shape() const { return shape_; }

  torch::Tensor read(const Block& block) const {
    check(block);
    const Handle space(H5Dget_space(id_.get()), H5Sclose);
    const auto start = to_sizes(block.start), count = to_sizes(block.count),
               stride = to_sizes(block.stride);
    torch::Tensor values = torch::empty(block.count, torch::kFloat32);
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
  void check(const Block& block) const {
    const std::size_t rank = shape_.size();
    if (block.start.size() != rank || block.count.size() != rank || block.stride.size() != rank) {
      throw DataError("{}: has {} dimensions, a block of {} was asked for", where_, rank,
                      block.start.size());
    }
    for (std::size_t i = 0; i < rank; ++i) {
      const std::int64_t last = block.start[i] + (block.count[i] - 1) * block.stride[i];
      if (block.start[i] < 0 || block.count[i] < 0 || block.stride[i] < 1 || last >= shape_[i]) {
        throw DataError(
            "{}: of shape [{}], a block from [{}] of [{}] in steps of [{}] is not in it", where_,
            fmt::join(shape_, ", "), fmt::join(block.start, ", "), fmt::join(block.count, ", "),
            fmt::join(block.stride, ", "));
      }
    }
  }

  Handle id_;
  std::string where_;
  std::vector<std::int64_t> shape_;
};

}  // namespace

Hdf5File::Hdf5File(fs::path path) : path_(std::move(path)) {
  const std::lock_guard lock(library());
  be_quiet();
  if (!fs::exists(path_)) throw DataError("{}: there is no such file", path_.string());
  handles_ = std::make_unique<Handles>(path_);
  if (!handles_->file) throw DataError("{}: is no HDF5 file, or a damaged one", path_.string());
}

Hdf5File::~Hdf5File() {
  const std::lock_guard lock(library());
  handles_.reset();
}

Hdf5File::Hdf5File(Hdf5File&&) noexcept = default;
Hdf5File& Hdf5File::operator=(Hdf5File&&) noexcept = default;

std::vector<std::string> Hdf5File::names() const {
  const std::lock_guard lock(library());
  return names_in(handles_->file.get());
}

std::vector<std::int64_t> Hdf5File::shape(const std::string& name) const {
  const std::lock_guard lock(library());
  return Dataset(handles_->file.get(), path_, name).shape();
}

torch::Tensor Hdf5File::read(const std::string& name, const Block& block) const {
  const std::lock_guard lock(library());
  if (handles_->opened_by != ::getpid()) {
    // Of a process that forked: its file is not to be shared. Closed first, or HDF5 would take the
    // new one for another handle of the old.
    handles_.reset();
    handles_ = std::make_unique<Handles>(path_);
    if (!handles_->file) throw DataError("{}: cannot be opened again", path_.string());
  }
  return Dataset(handles_->file.get(), path_, name).read(block);
}

torch::Tensor Hdf5File::read(const std::string& name) const {
  const auto sizes = shape(name);
  return read(name, {.start = std::vector<std::int64_t>(sizes.size(), 0),
                     .count = sizes,
                     .stride = std::vector<std::int64_t>(sizes.size(), 1)});
}

void write_hdf5(const fs::path& path,
                const std::vector<std::pair<std::string, torch::Tensor>>& datasets) {
  const std::lock_guard lock(library());
  be_quiet();
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
  fs::rename(aside, path);
}

}  // namespace lockstep::science

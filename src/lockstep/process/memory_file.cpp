#include "lockstep/process/memory_file.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::process {
namespace {

using Word = std::atomic<std::uint64_t>;
static_assert(Word::is_always_lock_free);

constexpr std::uint64_t kMagic = 0x3259524f4d454d4cULL;  // "LMEMORY2"
constexpr std::uint64_t kPage = 4096;
constexpr std::size_t kCopyBytes = 1 << 20;
// More memory than this is taken only after a look at whether the host has it.
constexpr std::uint64_t kCheckedBytes = 16 << 20;

// Since Linux 6.3; the headers of older systems do not have it.
constexpr unsigned kNoExec = 0x0008U;

FileDescriptor new_file() {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  FileDescriptor file(::memfd_create("lockstep-memory", kFlags | kNoExec));
  if (!file && errno == EINVAL) file = FileDescriptor(::memfd_create("lockstep-memory", kFlags));
  if (!file) throw Error("memory for restarts: cannot be made: {}", std::strerror(errno));
  return file;
}

std::uint64_t rounded_up(std::uint64_t size) {
  return (size + kPage - 1) / kPage * kPage;
}

// The memory that the host can still give, as the kernel estimates it. Nothing if it does not say.
std::optional<std::uint64_t> available_memory() {
  std::FILE* const file = std::fopen("/proc/meminfo", "re");
  if (file == nullptr) return std::nullopt;
  std::optional<std::uint64_t> found;
  unsigned long long kilobytes = 0;
  for (char line[256]; !found && std::fgets(line, sizeof line, file) != nullptr;) {
    if (std::sscanf(line, "MemAvailable: %llu kB", &kilobytes) == 1) found = kilobytes * 1024;
  }
  std::fclose(file);
  return found;
}

// A write beyond the user's limit for the size of files gives SIGXFSZ, which would end the process.
// With this it is only the error EFBIG.
class FileSizeSignal {
 public:
  FileSizeSignal() {
    ::sigemptyset(&signal_);
    ::sigaddset(&signal_, SIGXFSZ);
    ::pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~FileSizeSignal() {
    const timespec now{};
    if (!::sigismember(&before_, SIGXFSZ)) ::sigtimedwait(&signal_, nullptr, &now);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  FileSizeSignal(const FileSizeSignal&) = delete;
  FileSizeSignal& operator=(const FileSizeSignal&) = delete;

 private:
  sigset_t signal_{};
  sigset_t before_{};
};

[[noreturn]] void throw_no_room(std::uint64_t size, int cause) {
  if (cause == EFBIG) {
    rlimit limit{};
    ::getrlimit(RLIMIT_FSIZE, &limit);
    throw Error(
        "memory for restarts: cannot store a point of {}: the limit for the size of files is {} "
        "(ulimit -f); raise "
        "it, or start without --max-restarts",
        format_bytes(static_cast<double>(size)), format_bytes(static_cast<double>(limit.rlim_cur)));
  }
  throw Error("memory for restarts: cannot store a point of {}: {}",
              format_bytes(static_cast<double>(size)), std::strerror(cause));
}

void write_at(int descriptor, std::uint64_t offset, std::string_view bytes,
              std::uint64_t size_of_all) {
  while (!bytes.empty()) {
    const ssize_t written =
        ::pwrite(descriptor, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw_no_room(size_of_all, written < 0 ? errno : ENOSPC);
    offset += static_cast<std::uint64_t>(written);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

// False if the file ends before.
bool read_at(int descriptor, std::uint64_t offset, std::span<char> out) {
  while (!out.empty()) {
    const ssize_t count = ::pread(descriptor, out.data(), out.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    offset += static_cast<std::uint64_t>(count);
    out = out.subspan(static_cast<std::size_t>(count));
  }
  return true;
}

std::int64_t to_nanoseconds(std::chrono::steady_clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

std::chrono::steady_clock::time_point time_of(std::int64_t nanoseconds) {
  return std::chrono::steady_clock::time_point(
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(
          std::chrono::nanoseconds(nanoseconds)));
}

}  // namespace

// One of the two places of a run. Its bytes are at offset ... offset + capacity; no two places
// overlap. There is no other list of what is in use, so nothing can get lost when a process is
// killed here.
struct MemoryFile::PointPlace {
  Word offset;
  Word capacity;  // 0: it has no bytes yet
  Word size;
  Word sequence;
  Word checksum;  // of the bytes
  Word seal;      // of the words above, written last. If it does not match, there is no point here

  std::uint64_t seal_of_words() const {
    const std::array<std::uint64_t, 4> words = {offset, size, sequence, checksum};
    return XXH3_64bits(words.data(), sizeof words) | 1;  // 0 always means: no point
  }
  bool has_point() const { return seal.load(std::memory_order_acquire) == seal_of_words(); }
};

struct MemoryFile::NoteSlot {
  struct Content {
    std::uint64_t number = 0;  // 1, 2, ... in the order of notes
    std::int64_t time = 0;
    std::int64_t epoch = 0;
    std::int64_t batch = 0;
    std::int32_t attempt = 0;
    std::int32_t rank = 0;
    std::int32_t kind = 0;
    std::uint32_t size = 0;
    std::array<char, kLongestReason> reason = {};
  };
  Word seal;
  Content content;

  static std::uint64_t seal_of(const Content& content) {
    return XXH3_64bits(&content, sizeof content) | 1;
  }
};

struct MemoryFile::MemoryHeader {
  Word magic;
  Word attempt;
  Word began;   // nanoseconds of the steady clock
  Word failed;  // the same; 0: no failure before
  Word points;
  Word runs;  // the largest number of a run that was written, plus 1
  Word notes;
  std::array<Word, kMostRuns> batches;  // see count_batches()
  alignas(64) std::array<std::array<PointPlace, 2>, kMostRuns> places;
  alignas(64) std::array<NoteSlot, kMostNotes> ring;
};

MemoryFile::MemoryFile() : descriptor_(new_file()) {
  const FileSizeSignal no_signal;
  // The pages are taken now. If they were taken at the first write, a lack of memory would end the
  // process.
  if (::fallocate(descriptor_.get(), 0, 0, static_cast<off_t>(rounded_up(sizeof(MemoryHeader)))) !=
      0) {
    throw_no_room(sizeof(MemoryHeader), errno);
  }
  // A process that shrinks the file could end the others with SIGBUS.
  if (::fcntl(descriptor_.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
    throw Error("memory for restarts: cannot be sealed: {}", std::strerror(errno));
  }
  map();
  header_->magic = kMagic;
}

namespace {

// A count of batches is in one word with the attempt that counted, so that no process can be killed
// between the two. The word has the attempt plus 1: 0 means that nothing was ever counted.
constexpr int kBatchBits = 40;
constexpr std::uint64_t kBatchMask = (std::uint64_t{1} << kBatchBits) - 1;

std::uint64_t tag_of(std::int64_t attempt) {
  return static_cast<std::uint64_t>(attempt + 1) << kBatchBits;
}

}  // namespace

class MemoryFile::Opened {
 public:
  explicit Opened(FileDescriptor descriptor) : descriptor_(std::move(descriptor)) {}
  FileDescriptor take() { return std::move(descriptor_); }

 private:
  FileDescriptor descriptor_;
};

MemoryFile::MemoryFile(Opened opened) : descriptor_(opened.take()) {
  map();
}

MemoryFile::~MemoryFile() {
  if (header_ != nullptr) ::munmap(header_, sizeof(MemoryHeader));
}

void MemoryFile::map() {
  void* const address = ::mmap(nullptr, sizeof(MemoryHeader), PROT_READ | PROT_WRITE, MAP_SHARED,
                               descriptor_.get(), 0);
  if (address == MAP_FAILED)
    throw Error("memory for restarts: cannot be mapped: {}", std::strerror(errno));
  header_ = static_cast<MemoryHeader*>(address);
}

std::shared_ptr<MemoryFile> MemoryFile::inherited(const Environment& environment) {
  const auto found = environment.find(kVariable);
  if (found == environment.end() || found->second.empty()) return nullptr;
  const std::string& text = found->second;
  const auto refuse = [&](const std::string& why) -> ConfigError {
    return ConfigError(
        "environment variable {}: expected the descriptor of the memory that `lockstep launch "
        "--max-restarts` keeps, "
        "got '{}': {}; a program that starts others must hand the descriptor on, or unset the "
        "variable",
        kVariable, printable(text), why);
  };
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0)
    throw refuse("it is not a number");
  const int flags = ::fcntl(number, F_GETFD);
  if (flags < 0) throw refuse(std::strerror(errno));
  // Only files in memory have seals, so another file is recognised before it is mapped.
  const int seals = ::fcntl(number, F_GET_SEALS);
  struct stat status {};
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(number, &status) != 0 ||
      static_cast<std::size_t>(status.st_size) < sizeof(MemoryHeader)) {
    throw refuse("it is another file");
  }
  FileDescriptor copy(::fcntl(number, F_DUPFD_CLOEXEC, 3));
  if (!copy) throw refuse(std::strerror(errno));
  auto memory = std::make_shared<MemoryFile>(Opened(std::move(copy)));
  if (memory->header_->magic != kMagic) throw refuse("it is another file in memory");
  ::fcntl(number, F_SETFD, flags | FD_CLOEXEC);
  return memory;
}

std::uint64_t MemoryFile::end_of_places() const {
  std::uint64_t end = rounded_up(sizeof(MemoryHeader));
  for (std::size_t run = 0; run < header_->runs; ++run) {
    for (const PointPlace& place : header_->places[run])
      end = std::max(end, place.offset + place.capacity);
  }
  return end;
}

// The place of the run that does not have the newest point.
MemoryFile::PointPlace& MemoryFile::place_to_write(int run) const {
  std::array<PointPlace, 2>& places = header_->places[static_cast<std::size_t>(run)];
  if (!places[0].has_point()) return places[0];
  if (!places[1].has_point()) return places[1];
  return places[0].sequence < places[1].sequence ? places[0] : places[1];
}

void MemoryFile::free_pages(const PointPlace& place) const {
  if (place.capacity == 0) return;
  // This cannot fail for a file in memory. If it did, the pages would stay until the file is
  // closed.
  ::fallocate(descriptor_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              static_cast<off_t>(place.offset.load()), static_cast<off_t>(place.capacity.load()));
}

// A program that trains several times needs only the last point of the train() calls before this
// one.
void MemoryFile::drop_older_points(int run) const {
  for (std::size_t i = 0; i < static_cast<std::size_t>(run); ++i) {
    if (!header_->places[i][0].has_point() || !header_->places[i][1].has_point()) continue;
    PointPlace& older = place_to_write(static_cast<int>(i));
    older.seal = 0;
    free_pages(older);
    older.capacity = 0;
  }
}

// Writes one point. Until finish(), the place has no point.
class MemoryFile::PointWriter {
 public:
  PointWriter(const MemoryFile& file, int run) : file_(file), place_(file.place_to_write(run)) {
    XXH3_64bits_reset(checksum_.get());
    if (place_.has_point()) granted_ = place_.size;
    place_.seal = 0;
  }

  // Makes room for this many bytes.
  void reserve(std::uint64_t size) {
    check_memory(size);
    if (size <= place_.capacity) return;
    const std::uint64_t capacity = rounded_up(size + size / 4);
    const std::uint64_t end = file_.end_of_places();
    if (place_.capacity != 0 && place_.offset + place_.capacity == end) {
      place_.capacity = capacity;
      return;
    }
    // The place moves to the end of the file. For a moment there are two copies of its bytes.
    if (written_ >= kCheckedBytes) require_memory(written_, size);
    std::string buffer(std::min<std::uint64_t>(written_, kCopyBytes), '\0');
    for (std::uint64_t done = 0; done < written_; done += buffer.size()) {
      const std::span<char> part(buffer.data(),
                                 std::min<std::uint64_t>(buffer.size(), written_ - done));
      if (!read_at(file_.descriptor(), place_.offset + done, part)) throw_no_room(size, EIO);
      write_at(file_.descriptor(), end + done, {part.data(), part.size()}, size);
    }
    file_.free_pages(place_);
    place_.capacity =
        0;  // first, so that the place overlaps no other one if this process is killed here
    place_.offset = end;
    place_.capacity = capacity;
  }

  void write(std::string_view bytes) {
    reserve(written_ + bytes.size());
    XXH3_64bits_update(checksum_.get(), bytes.data(), bytes.size());
    write_at(file_.descriptor(), place_.offset + written_, bytes, written_ + bytes.size());
    written_ += bytes.size();
  }

  // A point that could not be written must not keep memory that the program may need.
  ~PointWriter() {
    if (!place_.has_point()) file_.free_pages(place_);
  }
  PointWriter(const PointWriter&) = delete;
  PointWriter& operator=(const PointWriter&) = delete;

  void finish(std::uint64_t sequence) {
    place_.size = written_;
    place_.sequence = sequence;
    place_.checksum = XXH3_64bits_digest(checksum_.get());
    place_.seal.store(place_.seal_of_words(), std::memory_order_release);
  }

 private:
  // Throws if the host does not have the memory for `size` bytes. To ask the kernel for it could
  // make it kill processes. A point may come in many small pieces, so it is looked at again after
  // every kCheckedBytes.
  void check_memory(std::uint64_t size) {
    if (size < granted_ + kCheckedBytes) return;
    require_memory(size - std::max(granted_, written_), size);
    granted_ = size;
  }

  // Throws if the host does not have `more` bytes, for a point of `size` bytes.
  static void require_memory(std::uint64_t more, std::uint64_t size) {
    const auto available = available_memory();
    if (!available || *available >= more) return;
    throw Error("memory for restarts: cannot store a point of {}: the host has only {} left",
                format_bytes(static_cast<double>(size)),
                format_bytes(static_cast<double>(*available)));
  }

  const MemoryFile& file_;
  PointPlace& place_;
  // Of the bytes that were written.
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> checksum_{
      XXH3_createState(), &XXH3_freeState};
  std::uint64_t written_ = 0;
  // Bytes that need no more memory of the host: those of the older point here, and those for which
  // check_memory() has found it.
  std::uint64_t granted_ = 0;
};

void MemoryFile::write(int run, std::uint64_t sequence, std::span<const std::string_view> pieces) {
  std::uint64_t size = 0;
  for (const std::string_view piece : pieces) size += piece.size();
  store(run, sequence, size, [&](const WriteBytes& write_bytes) {
    for (const std::string_view piece : pieces) write_bytes(piece);
  });
}

void MemoryFile::store(int run, std::uint64_t sequence, std::uint64_t size,
                       const std::function<void(const WriteBytes&)>& produce) {
  if (run < 0 || run >= kMostRuns) {
    throw Error("memory for restarts: expected the number of a train() call from 0 to {}, got {}",
                kMostRuns - 1, run);
  }
  const FileSizeSignal no_signal;
  const auto runs = static_cast<std::uint64_t>(run) + 1;
  if (header_->runs < runs) {
    drop_older_points(run);
    header_->runs = runs;
  }
  PointWriter writer(*this, run);
  writer.reserve(size);
  produce([&](std::string_view bytes) { writer.write(bytes); });
  writer.finish(sequence);
  ++header_->points;
}

void MemoryFile::count_batches(int run, std::int64_t batches) {
  if (run < 0 || run >= kMostRuns) return;
  const std::uint64_t count = static_cast<std::uint64_t>(batches) & kBatchMask;
  header_->batches[static_cast<std::size_t>(run)].store(tag_of(attempt()) | count,
                                                        std::memory_order_relaxed);
}

std::optional<std::int64_t> MemoryFile::batches_lost(int run) const {
  if (run < 0 || run >= kMostRuns) return std::nullopt;
  const std::uint64_t word = header_->batches[static_cast<std::size_t>(run)];
  if ((word & ~kBatchMask) != tag_of(attempt() - 1)) return std::nullopt;
  return static_cast<std::int64_t>(word & kBatchMask);
}

std::optional<StoredPoint> MemoryFile::read_place(const PointPlace& place) const {
  if (!place.has_point()) return std::nullopt;
  StoredPoint point{.sequence = place.sequence};
  point.bytes.resize(place.size);
  if (!read_at(descriptor_.get(), place.offset, point.bytes)) return std::nullopt;
  if (XXH3_64bits(point.bytes.data(), point.bytes.size()) != place.checksum) return std::nullopt;
  return point;
}

std::optional<StoredPoint> MemoryFile::read(int run) const {
  if (run < 0 || run >= kMostRuns) return std::nullopt;
  const std::array<PointPlace, 2>& places = header_->places[static_cast<std::size_t>(run)];
  const std::size_t newer = places[0].sequence < places[1].sequence ? 1 : 0;
  auto point = read_place(places[newer]);
  return point ? std::move(point) : read_place(places[1 - newer]);
}

std::uint64_t MemoryFile::points() const {
  return header_->points;
}

void MemoryFile::note_failure(FailureNote note) {
  const std::uint64_t number = header_->notes.fetch_add(1) + 1;
  NoteSlot& slot = header_->ring[number % kMostNotes];
  NoteSlot::Content content;
  content.number = number;
  content.time = to_nanoseconds(std::chrono::steady_clock::now());
  content.epoch = note.epoch;
  content.batch = note.batch;
  content.attempt = note.attempt;
  content.rank = note.rank;
  content.kind = static_cast<std::int32_t>(note.kind);
  content.size =
      static_cast<std::uint32_t>(note.reason.copy(content.reason.data(), kLongestReason));
  slot.seal = 0;
  slot.content = content;
  slot.seal.store(NoteSlot::seal_of(content), std::memory_order_release);
}

std::vector<FailureNote> MemoryFile::failures() const {
  std::vector<FailureNote> notes;
  const std::uint64_t last = header_->notes;
  for (std::uint64_t number = last > kMostNotes ? last - kMostNotes + 1 : 1; number <= last;
       ++number) {
    const NoteSlot& slot = header_->ring[number % kMostNotes];
    const std::uint64_t seal = slot.seal.load(std::memory_order_acquire);
    const NoteSlot::Content content = slot.content;
    // A process was killed while it wrote this note, or writes it now.
    if (content.number != number || seal != NoteSlot::seal_of(content) ||
        content.size > kLongestReason)
      continue;
    notes.push_back({.attempt = content.attempt,
                     .rank = content.rank,
                     .kind = static_cast<FailureKind>(content.kind),
                     .epoch = content.epoch,
                     .batch = content.batch,
                     .reason = std::string(content.reason.data(), content.size),
                     .time = time_of(content.time)});
  }
  return notes;
}

void MemoryFile::begin_attempt(const AttemptStart& start) {
  header_->attempt = static_cast<std::uint64_t>(start.attempt);
  header_->began = static_cast<std::uint64_t>(to_nanoseconds(start.began));
  header_->failed = start.failed ? static_cast<std::uint64_t>(to_nanoseconds(*start.failed)) : 0;
}

AttemptStart MemoryFile::attempt_start() const {
  AttemptStart start{.attempt = static_cast<int>(header_->attempt),
                     .began = time_of(static_cast<std::int64_t>(header_->began.load()))};
  if (header_->failed != 0)
    start.failed = time_of(static_cast<std::int64_t>(header_->failed.load()));
  return start;
}

}  // namespace lockstep::process

// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/run/conversation_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "engine/gguf/identity.h"
#include "engine/gguf/printable.h"
#include "engine/run/atomic_file.h"
#include "engine/run/clock.h"
#include "engine/run/engine_impl.h"

namespace granary {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr size_t kPieceBytes = 4 << 20;

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
    return std::as_bytes(std::span(values));
}

template <size_t N>
std::array<char, N> short_text(std::string_view text) {
    std::array<char, N> result{};
    std::copy_n(text.begin(), std::min(text.size(), N), result.begin());
    return result;
}

template <size_t N>
std::string text_of(const std::array<char, N>& text) {
    return gguf::printable({text.data(), strnlen(text.data(), N)});
}

// Counts and hashes the bytes that pass, tells of them, and notices a wish to stop.
class Passing {
  public:
    Passing(uint64_t total, const LoadProgress& progress) : total_(total), progress_(progress) {}
    Result<void> pass(std::span<const std::byte> bytes) {
        hash_.add(bytes);
        done_ += bytes.size();
        if (progress_.on_bytes) progress_.on_bytes(done_, total_);
        if (progress_.stop && progress_.stop->requested())
            return fail(ErrorKind::cancelled, "it was stopped");
        return {};
    }
    ContentHash::Digest digest() const { return hash_.digest(); }

  private:
    uint64_t total_, done_ = 0;
    const LoadProgress& progress_;
    ContentHash hash_;
};

class Writer {
  public:
    Writer(AtomicFile& file, uint64_t total, const LoadProgress& progress)
        : file_(file), passing_(total, progress) {}
    Result<void> put(std::span<const std::byte> bytes) {
        for (; !bytes.empty(); bytes = bytes.subspan(std::min(bytes.size(), kPieceBytes))) {
            const auto piece = bytes.first(std::min(bytes.size(), kPieceBytes));
            if (auto r = file_.write(piece); !r) return r;
            if (auto r = passing_.pass(piece); !r) return r;
        }
        return {};
    }
    Result<void> finish() {
        const ContentHash::Digest digest = passing_.digest();
        if (auto r = file_.write(std::as_bytes(std::span(digest))); !r) return r;
        return file_.commit();
    }

  private:
    AtomicFile& file_;
    Passing passing_;
};

// Reads a regular file from front to back. That others change it meanwhile ends in an error.
class Reader {
  public:
    Reader(const std::string& path, const LoadProgress& progress)
        : path_(path), progress_(progress) {}
    ~Reader() {
        if (file_ >= 0) ::close(file_);
    }
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;

    Result<void> open() {
        // Without O_NONBLOCK, opening a pipe that nobody writes to would wait for ever.
        file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (file_ < 0) return io_error();
        struct stat status = {};
        if (::fstat(file_, &status) != 0) return io_error();
        if (!S_ISREG(status.st_mode))
            return fail(ErrorKind::io, "this is not a regular file", gguf::quoted(path_));
        size_ = static_cast<uint64_t>(status.st_size);
        passing_.emplace(size_, progress_);
        return {};
    }
    uint64_t size() const { return size_; }

    Result<void> get(std::span<std::byte> to) {
        for (; !to.empty(); to = to.subspan(std::min(to.size(), kPieceBytes))) {
            const auto piece = to.first(std::min(to.size(), kPieceBytes));
            if (auto r = get_raw(piece); !r) return r;
            if (auto r = passing_->pass(piece); !r) return r;
        }
        return {};
    }
    template <class T>
    Result<std::vector<T>> get_list(uint64_t count) {
        std::vector<T> values(count);
        if (auto r = get(std::as_writable_bytes(std::span(values))); !r)
            return tl::unexpected(r.error());
        return values;
    }
    // The hash at the end belongs to all that was read.
    Result<void> finish() {
        ContentHash::Digest stored;
        const ContentHash::Digest computed = passing_->digest();
        if (auto r = get_raw(std::as_writable_bytes(std::span(stored))); !r) return r;
        if (stored != computed) return damaged("what it holds is not what was written");
        return {};
    }
    tl::unexpected<Error> damaged(const std::string& detail) const {
        return fail(ErrorKind::invalid_file, "the conversation's file is damaged",
                    gguf::quoted(path_) + ": " + detail, "Delete it and read the document again");
    }
    tl::unexpected<Error> other(const std::string& detail, std::string advice) const {
        return fail(ErrorKind::unsupported, "the conversation's file cannot be used here",
                    gguf::quoted(path_) + ": " + detail, std::move(advice));
    }

  private:
    Result<void> get_raw(std::span<std::byte> to) {
        while (!to.empty()) {
            const ssize_t n = ::read(file_, to.data(), to.size());
            if (n < 0 && errno == EINTR) continue;
            if (n < 0) return io_error();
            if (n == 0) return damaged("it ends too early");
            to = to.subspan(static_cast<size_t>(n));
        }
        return {};
    }
    tl::unexpected<Error> io_error() const {
        return fail(ErrorKind::io, "the conversation's file cannot be read",
                    gguf::quoted(path_) + ": " + std::generic_category().message(errno));
    }

    const std::string& path_;
    const LoadProgress& progress_;
    int file_ = -1;
    uint64_t size_ = 0;
    std::optional<Passing> passing_;
};

uint64_t kv_bytes(const KvLayout& kv, uint32_t cells) {
    uint64_t bytes = 0;
    for (const KvRun& run : kv_runs(kv, cells)) bytes += run.bytes;
    return bytes;
}

// Of a header whose counts are within their bounds, so that no product overflows.
uint64_t bytes_for(const FileHeader& header, uint64_t with_logits, const KvLayout& kv) {
    return sizeof header + uint64_t{header.spans} * sizeof(FileSpan) +
           uint64_t{header.tokens} * sizeof(TokenId) + header.message_bytes +
           uint64_t{header.checkpoints} * (sizeof(FileCheckpoint) + header.state_bytes) +
           with_logits * header.vocab * sizeof(float) + kv_bytes(kv, header.cells) +
           sizeof(ContentHash::Digest);
}

std::string pack(const std::vector<Message>& messages) {
    std::string packed;
    for (const Message& message : messages) {
        const std::array<uint32_t, 2> sizes{static_cast<uint32_t>(message.role.size()),
                                            static_cast<uint32_t>(message.content.size())};
        packed.append(reinterpret_cast<const char*>(sizes.data()), sizeof sizes);
        packed += message.role;
        packed += message.content;
    }
    return packed;
}

std::optional<std::vector<Message>> unpack(std::string_view packed, uint32_t count) {
    std::vector<Message> messages;
    const auto take = [&](uint32_t size) {
        const std::string_view text = packed.substr(0, size);
        packed.remove_prefix(size);
        return std::string(text);
    };
    for (uint32_t i = 0; i < count; ++i) {
        std::array<uint32_t, 2> sizes;
        if (packed.size() < sizeof sizes) return {};
        std::memcpy(sizes.data(), packed.data(), sizeof sizes);
        packed.remove_prefix(sizeof sizes);
        if (uint64_t{sizes[0]} + sizes[1] > packed.size()) return {};
        std::string role = take(sizes[0]);
        messages.push_back({std::move(role), take(sizes[1])});
    }
    if (!packed.empty()) return {};
    return messages;
}

std::string speed_text(uint64_t bytes, double seconds) {
    char text[80];
    std::snprintf(text, sizeof text, " in %.2f s (%.2f GB/s)", seconds,
                  static_cast<double>(bytes) / std::max(seconds, 1e-9) / 1e9);
    return format_bytes(bytes) + text;
}

}  // namespace

ContentHash::Digest FileHeader::computed_hash() const {
    ContentHash computed;
    computed.add(std::as_bytes(std::span(this, 1)).first(offsetof(FileHeader, hash)));
    return computed.digest();
}

std::vector<KvRun> kv_runs(const KvLayout& kv, uint32_t cells) {
    std::vector<KvRun> runs;
    if (kv.step_bytes == 0) return runs;
    const uint64_t whole = cells / gpu::kStepCells * kv.step_bytes;
    const uint64_t rest = cells % gpu::kStepCells;
    if (whole) runs.push_back({0, whole});
    for (uint64_t layer = 0; rest && layer < kv.step_bytes; layer += kv.parts.bytes)
        for (const gpu::KvPart& part : {kv.parts.k, kv.parts.v}) {
            runs.push_back({whole + layer + part.code_offset, rest * part.code_row});
            if (part.scale_row)
                runs.push_back({whole + layer + part.scale_offset, rest * part.scale_row});
        }
    return runs;
}

FileHeader Engine::Impl::file_header() const {
    const ModelFacts& facts = core->model.facts;
    const KvLayout& kv = core->memory->kv();
    FileHeader header;
    header.header_bytes = sizeof header;
    header.model = gguf::identity_of(*file);
    header.model_name = short_text<64>(facts.name);
    header.kv_format = short_text<16>(gpu::kv_format_name(core->plan.kv_format));
    header.step_bytes = kv.step_bytes;
    header.step_cells = gpu::kStepCells;
    header.arithmetic = static_cast<uint32_t>(options.arithmetic);
    header.state_bytes = facts.state_bytes;
    header.vocab = facts.vocab;
    const RopeScaling& rope = core->plan.rope;
    header.rope_kind = static_cast<uint32_t>(rope.kind);
    if (rope.kind != RopeKind::none) header.rope_factor = static_cast<float>(rope.factor);
    return header;
}

Result<uint64_t> Engine::Impl::save_conversation(ConversationId id, const std::string& path,
                                                 const std::vector<Message>& messages,
                                                 const LoadProgress& progress) {
    const auto start = Clock::now();
    const auto found = conversations.find(id);
    if (found == conversations.end())
        return fail(ErrorKind::invalid_argument, "no such conversation", std::to_string(id));
    Conversation& conversation = found->second;
    if (auto r = keep_state(conversation); !r) return tl::unexpected(r.error());

    const KvLayout& kv = core->memory->kv();
    FileHeader header = file_header();
    header.cells = conversation.cells;
    std::vector<const Checkpoint*> states;  // newest first
    if (keeps_state()) {
        std::vector<uint32_t> kept = conversation.checkpoint_cells();
        header.cells = kept.empty() ? 0 : kept.back();
        // They need not take more of the disk than cells do; three serve the last turn.
        const uint64_t most =
            std::max<uint64_t>(kv_bytes(kv, header.cells) / header.state_bytes, 3);
        while (kept.size() > most) {
            const auto older = std::span(kept).first(kept.size() - 1);
            kept.erase(kept.begin() +
                       static_cast<std::ptrdiff_t>(least_worth(older, header.cells).index));
        }
        for (size_t i = kept.size(); i > 0; --i)
            states.push_back(conversation.checkpoint_at(kept[i - 1]));
    }
    const std::string packed = pack(messages);
    if (packed.size() > kMostMessageBytes || messages.size() > kMostMessages)
        return fail(ErrorKind::refused, "the messages are too long to be saved",
                    std::to_string(messages.size()) + " of " + format_bytes(packed.size()) +
                        "; at most " + std::to_string(kMostMessages) + " of " +
                        format_bytes(kMostMessageBytes));
    std::vector<FileSpan> spans;
    for (const Span& span : conversation.history.spans())
        spans.push_back({span.end, static_cast<uint32_t>(span.kind)});
    std::vector<FileCheckpoint> list;
    uint64_t with_logits = 0;
    for (const Checkpoint* state : states) {
        list.push_back({state->cells, !state->logits.empty()});
        with_logits += list.back().has_logits;
    }
    header.tokens = conversation.history.size();
    header.spans = static_cast<uint32_t>(spans.size());
    header.messages = static_cast<uint32_t>(messages.size());
    header.message_bytes = packed.size();
    header.checkpoints = static_cast<uint32_t>(list.size());
    header.file_bytes = bytes_for(header, with_logits, kv);
    header.hash = header.computed_hash();

    auto target = AtomicFile::create(path, header.file_bytes);
    if (!target) return tl::unexpected(target.error());
    Writer out(*target, header.file_bytes, progress);
    for (const auto part : {std::as_bytes(std::span(&header, 1)), bytes_of(spans),
                            std::as_bytes(conversation.history.tokens()),
                            std::as_bytes(std::span(packed)), bytes_of(list)})
        if (auto r = out.put(part); !r) return tl::unexpected(r.error());
    for (const Checkpoint* state : states) {
        if (auto r = out.put({state->state.get(), header.state_bytes}); !r)
            return tl::unexpected(r.error());
        if (auto r = out.put(bytes_of(state->logits)); !r) return tl::unexpected(r.error());
    }
    std::vector<std::byte> piece(kPieceBytes);
    for (const KvRun& run : kv_runs(kv, header.cells)) {
        const std::byte* const from = core->memory->kv_base(conversation.kv) + run.offset;
        for (uint64_t at = 0; at < run.bytes; at += kPieceBytes) {
            const uint64_t n = std::min<uint64_t>(kPieceBytes, run.bytes - at);
            core->device->copy(gpu::StreamId::compute, piece.data(), from + at, n);
            if (auto r = core->device->synchronize(gpu::StreamId::compute); !r)
                return tl::unexpected(r.error());
            if (auto r = out.put({piece.data(), n}); !r) return tl::unexpected(r.error());
        }
    }
    if (auto r = out.finish(); !r) return tl::unexpected(r.error());
    const double seconds = seconds_since(start);
    log(LogLevel::info, "conversation of " + std::to_string(header.tokens) +
                            " tokens saved: " + speed_text(header.file_bytes, seconds));
    return header.file_bytes;
}

namespace {

// The file is whole by its own account and was made by an engine like this one.
Result<FileHeader> check_header(Reader& in, const FileHeader& own, const Plan& plan) {
    FileHeader header;
    const auto bytes = std::as_writable_bytes(std::span(&header, 1));
    if (in.size() < sizeof header + sizeof(ContentHash::Digest))
        return in.damaged(std::to_string(in.size()) + " bytes are too few");
    if (auto r = in.get(bytes); !r) return tl::unexpected(r.error());
    if (header.magic != FileHeader::kMagic)
        return in.other("it is not a conversation of Granary", "Choose another file");
    if (header.version != FileHeader::kVersion || header.header_bytes != sizeof header)
        return in.other("it has version " + std::to_string(header.version) +
                            ", this program reads " + std::to_string(FileHeader::kVersion),
                        "Read the document again with this program");
    if (header.hash != header.computed_hash()) return in.damaged("its header does not match");
    if (header.file_bytes != in.size())
        return in.damaged("it should have " + std::to_string(header.file_bytes) +
                          " bytes and has " + std::to_string(in.size()));
    if (header.model != own.model) {
        const std::string name = text_of(header.model_name), here = text_of(own.model_name);
        return in.other(name == here ? "it was made with another file of the model " + name
                                     : "it was made with the model " + name + ", this is " + here,
                        "Open that model");
    }
    if (header.kv_format != own.kv_format || header.arithmetic != own.arithmetic)
        return in.other("its K/V is " + text_of(header.kv_format) + ", that of this engine " +
                            text_of(own.kv_format) +
                            (header.kv_format == own.kv_format ? " of another arithmetic" : ""),
                        "Set kv to " + text_of(header.kv_format));
    if (header.rope_kind > static_cast<uint32_t>(RopeKind::yarn))
        return in.damaged("its positions are stretched in no known way");
    if (header.rope_kind != own.rope_kind || header.rope_factor != own.rope_factor) {
        const auto of = [](const FileHeader& header) {
            RopeScaling rope;
            rope.kind = static_cast<RopeKind>(header.rope_kind);
            rope.factor = header.rope_factor;
            return rope;
        };
        const RopeScaling its = of(header);
        std::string advice = "Set rope-scaling to " + std::string(rope_kind_name(its.kind));
        if (its.kind != RopeKind::none) advice += " and rope-factor to " + factor_text(its.factor);
        return in.other(
            "its positions are " + its.text() + ", those of this engine " + of(own).text(), advice);
    }
    if (header.step_bytes != own.step_bytes || header.step_cells != own.step_cells ||
        header.state_bytes != own.state_bytes || header.vocab != own.vocab)
        return in.damaged("its cells and states are not laid out as the model's");
    // From here on every count is bounded before anything is computed or allocated with it.
    if (header.tokens > kLongestContext || header.cells > header.tokens ||
        header.spans > header.tokens || header.message_bytes > kMostMessageBytes ||
        header.messages > kMostMessages || header.checkpoints > kMostFileCheckpoints)
        return in.damaged("its counts are impossible");
    if (header.tokens > plan.max_context)
        return fail(ErrorKind::refused, "the conversation does not fit",
                    std::to_string(header.tokens) + " tokens are more than max-context " +
                        std::to_string(plan.max_context),
                    "Raise max-context to " + std::to_string(header.tokens) + " or more");
    return header;
}

}  // namespace

Result<Reopened> Engine::Impl::restore_conversation(const std::string& path,
                                                    const LoadProgress& progress) {
    const auto start = Clock::now();
    Reader in(path, progress);
    if (auto r = in.open(); !r) return tl::unexpected(r.error());
    const auto header = check_header(in, file_header(), core->plan);
    if (!header) return tl::unexpected(header.error());

    auto spans = in.get_list<FileSpan>(header->spans);
    if (!spans) return tl::unexpected(spans.error());
    auto tokens = in.get_list<TokenId>(header->tokens);
    if (!tokens) return tl::unexpected(tokens.error());
    auto packed = in.get_list<char>(header->message_bytes);
    if (!packed) return tl::unexpected(packed.error());
    auto list = in.get_list<FileCheckpoint>(header->checkpoints);
    if (!list) return tl::unexpected(list.error());

    std::vector<Span> read;
    for (const FileSpan& span : *spans) {
        if (span.end <= (read.empty() ? 0 : read.back().end) || span.kind > 1)
            return in.damaged("its spans are impossible");
        read.push_back({span.end, static_cast<TokenKind>(span.kind)});
    }
    if ((read.empty() ? 0 : read.back().end) != header->tokens)
        return in.damaged("its spans do not cover its tokens");
    for (const TokenId token : *tokens)
        if (token < 0 || static_cast<uint32_t>(token) >= header->vocab)
            return in.damaged("token " + std::to_string(token) + " is outside the vocabulary of " +
                              std::to_string(header->vocab));
    auto messages = unpack({packed->data(), packed->size()}, header->messages);
    if (!messages) return in.damaged("its messages are impossible");
    uint64_t with_logits = 0;
    for (size_t i = 0; i < list->size(); ++i) {
        const FileCheckpoint& state = (*list)[i];
        // The first stands where the cells end, the others before it.
        const bool in_order =
            i == 0 ? state.cells == header->cells : state.cells < (*list)[i - 1].cells;
        if (!in_order || state.cells == 0 || state.has_logits > 1)
            return in.damaged("its states are impossible");
        with_logits += state.has_logits;
    }
    if ((header->state_bytes > 0 && header->cells > 0) != !list->empty())
        return in.damaged("it lacks the state after its cells");
    if (bytes_for(*header, with_logits, core->memory->kv()) != header->file_bytes)
        return in.damaged("its size is not that of what it holds");

    auto id = begin_conversation();
    if (!id) return tl::unexpected(id.error());
    Conversation& conversation = conversations.at(*id);
    conversation.last_use = ++use_clock;
    conversation.history = History(history_grid(), std::move(*tokens), std::move(read));
    conversation.cells = header->cells;
    auto filled = fill(conversation, *list, [&](std::span<std::byte> to) { return in.get(to); });
    if (filled) filled = in.finish();
    if (!filled) {
        give_up(conversation);
        conversations.erase(*id);
        return tl::unexpected(filled.error());
    }
    const double seconds = seconds_since(start);
    log(LogLevel::info, "conversation of " + std::to_string(header->tokens) +
                            " tokens reopened: " + speed_text(header->file_bytes, seconds));
    return Reopened{*id, header->cells, std::move(*messages)};
}

Result<void> Engine::Impl::fill(Conversation& conversation, const std::vector<FileCheckpoint>& list,
                                const std::function<Result<void>(std::span<std::byte>)>& get) {
    MemoryManager& memory = *core->memory;
    const uint64_t state_bytes = core->model.facts.state_bytes;
    if (conversation.cells > 0)
        if (auto growth = grow(conversation, conversation.cells); !growth)
            return tl::unexpected(growth.error());
    std::vector<std::byte> piece(kPieceBytes);
    const auto skip = [&](uint64_t bytes) -> Result<void> {
        for (; bytes > 0; bytes -= std::min<uint64_t>(bytes, kPieceBytes))
            if (auto r = get({piece.data(), std::min<uint64_t>(bytes, kPieceBytes)}); !r) return r;
        return {};
    };
    std::vector<Checkpoint> states;
    for (const FileCheckpoint& entry : list) {
        // Older ones only where nobody has to give way to them.
        uint64_t held = states.size();
        for (const auto& [id, other] : conversations) held += other.checkpoints.size();
        Checkpoint state{entry.cells, nullptr, {}};
        if (states.empty())
            state.state = room_for_state(conversation, 0, conversation.cells);
        else if ((held + 1) * state_bytes <= options.checkpoint_bytes)
            state.state = allocate_state(state_bytes);
        if (!state.state) {
            if (states.empty())
                return fail(ErrorKind::out_of_memory, "there is no memory for the state",
                            format_bytes(state_bytes), "Close other programs");
            const uint64_t logits = entry.has_logits * core->model.facts.vocab * sizeof(float);
            if (auto r = skip(state_bytes + logits); !r) return r;
            continue;
        }
        if (auto r = get({state.state.get(), state_bytes}); !r) return r;
        if (entry.has_logits) {
            state.logits.resize(core->model.facts.vocab);
            if (auto r = get(std::as_writable_bytes(std::span(state.logits))); !r) return r;
        }
        states.push_back(std::move(state));
    }
    for (; !states.empty(); states.pop_back())
        conversation.checkpoints.push_back(std::move(states.back()));

    if (conversation.cells == 0) return {};
    for (const KvRun& run : kv_runs(memory.kv(), conversation.cells)) {
        std::byte* const to = memory.kv_base(conversation.kv) + run.offset;
        for (uint64_t at = 0; at < run.bytes; at += kPieceBytes) {
            const uint64_t n = std::min<uint64_t>(kPieceBytes, run.bytes - at);
            if (auto r = get({piece.data(), n}); !r) return r;
            core->device->copy(gpu::StreamId::compute, to + at, piece.data(), n);
        }
    }
    return core->device->synchronize(gpu::StreamId::compute);
}

}  // namespace granary

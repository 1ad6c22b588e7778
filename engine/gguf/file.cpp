// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/gguf/file.h"

#include <new>
#include <utility>

#include "engine/gguf/mapping.h"
#include "engine/gguf/printable.h"
#include "engine/gguf/reader.h"
#include "engine/gguf/split.h"

namespace granary::gguf {

struct File::Impl {
    std::string path;             // as it was given
    std::vector<Mapping> mapped;  // by part
    Part first;                   // its tensors are moved to `tensors`
    std::vector<Tensor> tensors;  // of all parts, in their order
    NameIndex names;

    Result<void> open(const std::string& given);
    Result<void> open_split(Mapping opened, uint64_t count);
    Result<Part> add(Mapping file);
    Result<void> index_tensors();
    Result<void> intact() const;
};

namespace {

tl::unexpected<Error> split_error(const std::string& path, std::string what,
                                  const std::string& numbers, std::string advice = {}) {
    return fail(ErrorKind::invalid_file, std::move(what), quoted(path) + ": " + numbers,
                std::move(advice));
}

// An unsigned value of a part's metadata; `otherwise` where it is absent.
Result<uint64_t> part_number(const Mapping& file, const Part& part, std::string_view key,
                             uint64_t otherwise) {
    const Value* const value = part.find(key);
    if (value == nullptr) return otherwise;
    if (const auto* number = std::get_if<uint64_t>(value)) return *number;
    // The common splitter writes the tensor count as a signed number.
    if (const auto* number = std::get_if<int64_t>(value); number != nullptr && *number >= 0) {
        return static_cast<uint64_t>(*number);
    }
    return split_error(file.path(), "a split file's number is damaged",
                       std::string(key) + " is no unsigned integer");
}

}  // namespace

Result<Part> File::Impl::add(Mapping file) {
    mapped.push_back(std::move(file));
    Result<Part> part = Reader(mapped.back(), static_cast<uint32_t>(mapped.size() - 1)).read();
    if (part) tensors.insert(tensors.end(), part->tensors.begin(), part->tensors.end());
    return part;
}

Result<void> File::Impl::open(const std::string& given) {
    path = given;
    Result<Mapping> file = Mapping::open(given);
    if (!file) return tl::unexpected(file.error());
    Result<Part> part = Reader(*file, 0).read();
    if (!part) return tl::unexpected(part.error());
    const Result<uint64_t> count = part_number(*file, *part, "split.count", 1);
    if (!count) return tl::unexpected(count.error());
    if (*count > 1) return open_split(std::move(*file), *count);
    mapped.push_back(std::move(*file));
    first = std::move(*part);
    tensors = std::move(first.tensors);
    return index_tensors();
}

Result<void> File::Impl::open_split(Mapping opened, uint64_t count) {
    const auto name = parse_split_name(opened.path());
    if (!name || name->count != count || name->number < 1 || name->number > count) {
        return split_error(opened.path(), "this part of a split model has been renamed",
                           "split.count is " + std::to_string(count) +
                               ", the name does not end in -NNNNN-of-NNNNN.gguf to match",
                           "Give the parts their names back");
    }
    uint64_t expected_tensors = 0;
    for (uint32_t i = 0; i < count; ++i) {
        const std::string part_path = name->path(i + 1);
        Result<Mapping> file = Mapping::open(part_path);
        if (!file) {
            Error error = file.error();
            error.what = "part " + std::to_string(i + 1) + " of " + std::to_string(count) +
                         " of a split model cannot be opened";
            error.advice = "All parts must lie in one folder";
            return tl::unexpected(std::move(error));
        }
        Result<Part> part = add(std::move(*file));
        if (!part) return tl::unexpected(part.error());
        const Mapping& here = mapped.back();
        const auto its_number = part_number(here, *part, "split.no", UINT64_MAX);
        const auto its_count = part_number(here, *part, "split.count", 1);
        const auto its_tensors = part_number(here, *part, "split.tensors.count", UINT64_MAX);
        for (const auto* result : {&its_number, &its_count, &its_tensors}) {
            if (!*result) return tl::unexpected(result->error());
        }
        if (*its_count != count || *its_number != i) {
            return split_error(part_path, "this file is no part of the same split model",
                               "split.no " + std::to_string(*its_number) + " of split.count " +
                                   std::to_string(*its_count) + ", expected " + std::to_string(i) +
                                   " of " + std::to_string(count),
                               "Download the part again");
        }
        if (i == 0) expected_tensors = *its_tensors;
        if (*its_tensors != expected_tensors) {
            return split_error(part_path, "the parts of a split model disagree",
                               "split.tensors.count " + std::to_string(*its_tensors) +
                                   ", the first part says " + std::to_string(expected_tensors),
                               "Download the parts again");
        }
        if (i == 0) first = std::move(*part);
    }
    if (expected_tensors != UINT64_MAX && expected_tensors != tensors.size()) {
        return split_error(path, "the parts of a split model hold another number of tensors",
                           "split.tensors.count " + std::to_string(expected_tensors) + ", found " +
                               std::to_string(tensors.size()),
                           "Download the parts again");
    }
    return index_tensors();
}

Result<void> File::Impl::intact() const {
    for (const Mapping& file : mapped)
        if (auto r = file.intact(); !r) return r;
    return {};
}

Result<void> File::Impl::index_tensors() {
    for (const Tensor& tensor : tensors) names.add(tensor.name);
    if (const auto twice = names.sort()) {
        const Tensor& tensor = tensors[*twice];
        const Mapping& file = mapped[tensor.part];
        const auto* const name = reinterpret_cast<const std::byte*>(tensor.name.data());
        return fail(ErrorKind::invalid_file, "a tensor's name occurs twice",
                    quoted(file.path()) + ": name, offset " + std::to_string(name - file.data()) +
                        ": " + quoted(tensor.name));
    }
    return {};
}

Result<std::shared_ptr<const File>> File::open(const std::string& path) {
    try {
        auto impl = std::make_unique<Impl>();
        if (Result<void> opened = impl->open(path); !opened) {
            return tl::unexpected(opened.error());
        }
        if (auto r = impl->intact(); !r) return tl::unexpected(r.error());
        return std::shared_ptr<const File>(new File(std::move(impl)));
    } catch (const std::bad_alloc&) {
        return fail(ErrorKind::out_of_memory, "memory ran out while the model's tables were read",
                    quoted(path));
    }
}

File::File(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
File::~File() = default;

const std::string& File::path() const {
    return impl_->path;
}
uint32_t File::version() const {
    return impl_->first.version;
}

std::vector<std::span<const std::byte>> File::mappings() const {
    std::vector<std::span<const std::byte>> parts;
    for (const Mapping& file : impl_->mapped) parts.emplace_back(file.data(), file.size());
    return parts;
}

Result<void> File::still_whole() const {
    for (const Mapping& file : impl_->mapped)
        if (auto whole = file.still_whole(); !whole) return whole;
    return {};
}

Result<void> File::intact() const {
    return impl_->intact();
}

uint64_t File::total_bytes() const {
    uint64_t bytes = 0;
    for (const Mapping& file : impl_->mapped) bytes += file.size();
    return bytes;
}

std::span<const std::pair<std::string_view, Value>> File::metadata() const {
    return impl_->first.metadata;
}

std::span<const Tensor> File::tensors() const {
    return impl_->tensors;
}

const Value* File::find(std::string_view key) const {
    return impl_->first.find(key);
}

const Tensor* File::tensor(std::string_view name) const {
    const auto at = impl_->names.find(name);
    return at ? &impl_->tensors[*at] : nullptr;
}

}  // namespace granary::gguf

// SPDX-License-Identifier: GPL-3.0-or-later
// Typed look-ups of metadata.
#include <type_traits>

#include "engine/gguf/file.h"
#include "engine/gguf/printable.h"

namespace granary::gguf {
namespace {

const char* type_name(const Value& value) {
    static constexpr const char* names[] = {
        "an unsigned integer", "a signed integer", "a real number",
        "a truth value",       "a string",         "an array"};
    return names[value.index()];
}

// What a value is as T; nothing if it is no such thing. Writers disagree on signedness, so a
// signed number that is not negative is an unsigned one, and integers are real numbers.
template <class T>
std::optional<T> as(const Value& value) {
    if (const auto* exact = std::get_if<T>(&value)) return *exact;
    if constexpr (std::is_same_v<T, uint64_t>) {
        const auto* number = std::get_if<int64_t>(&value);
        if (number != nullptr && *number >= 0) return static_cast<uint64_t>(*number);
    }
    if constexpr (std::is_same_v<T, double>) {
        if (const auto* u = std::get_if<uint64_t>(&value)) return static_cast<double>(*u);
        if (const auto* i = std::get_if<int64_t>(&value)) return static_cast<double>(*i);
    }
    return std::nullopt;
}

tl::unexpected<Error> wrong_type(const File& file, std::string_view key, const Value& value,
                                 const char* expected) {
    std::string found = type_name(value);
    if (const auto* number = std::get_if<int64_t>(&value)) {
        found += " (" + std::to_string(*number) + ")";
    }
    return fail(ErrorKind::invalid_file, "a metadata value has the wrong type",
                quoted(file.path()) + ": " + quoted(key) + " is " + found + ", not " + expected);
}

tl::unexpected<Error> absent(const File& file, std::string_view key) {
    return fail(ErrorKind::invalid_file, "a metadata value is missing",
                quoted(file.path()) + ": " + quoted(key));
}

template <class T>
Result<std::optional<T>> find_as(const File& file, std::string_view key, const char* expected) {
    const Value* const value = file.find(key);
    if (value == nullptr) return std::optional<T>();
    const std::optional<T> found = as<T>(*value);
    if (!found) return wrong_type(file, key, *value, expected);
    return found;
}

template <class T>
Result<T> get_as(const File& file, std::string_view key, const char* expected) {
    const Result<std::optional<T>> found = find_as<T>(file, key, expected);
    if (!found) return tl::unexpected(found.error());
    if (!*found) return absent(file, key);
    return **found;
}

constexpr const char* an_unsigned = "an unsigned integer";
constexpr const char* a_real = "a number";
constexpr const char* a_bool = "a truth value";
constexpr const char* a_string = "a string";

}  // namespace

Result<uint64_t> File::get_unsigned(std::string_view key) const {
    return get_as<uint64_t>(*this, key, an_unsigned);
}

Result<double> File::get_real(std::string_view key) const {
    return get_as<double>(*this, key, a_real);
}

Result<std::string_view> File::get_string(std::string_view key) const {
    return get_as<std::string_view>(*this, key, a_string);
}

Result<const Array*> File::get_array(std::string_view key) const {
    const Value* const value = find(key);
    if (value == nullptr) return absent(*this, key);
    const auto* const array = std::get_if<Array>(value);
    if (array == nullptr) return wrong_type(*this, key, *value, "an array");
    return array;
}

Result<std::optional<uint64_t>> File::find_unsigned(std::string_view key) const {
    return find_as<uint64_t>(*this, key, an_unsigned);
}

Result<std::optional<double>> File::find_real(std::string_view key) const {
    return find_as<double>(*this, key, a_real);
}

Result<std::optional<bool>> File::find_bool(std::string_view key) const {
    return find_as<bool>(*this, key, a_bool);
}

Result<std::optional<std::string_view>> File::find_string(std::string_view key) const {
    return find_as<std::string_view>(*this, key, a_string);
}

}  // namespace granary::gguf

// SPDX-License-Identifier: GPL-3.0-or-later
#include <algorithm>
#include <charconv>
#include <cstring>

#include "tests/gpu/ptx/reader.h"

namespace granary::test::ptx {

uint64_t number_of(std::string_view word) {
    uint64_t value = 0;
    int base = 10;
    if (word.starts_with("0f") || word.starts_with("0F") || word.starts_with("0d") ||
        word.starts_with("0D") || word.starts_with("0x") || word.starts_with("0X")) {
        word.remove_prefix(2);
        base = 16;
    }
    if (word.ends_with('U')) word.remove_suffix(1);
    const auto end = std::from_chars(word.data(), word.data() + word.size(), value, base).ptr;
    if (end == word.data() + word.size()) return value;
    double real = 0;  // "1.0", of a cache policy
    if (std::from_chars(word.data(), word.data() + word.size(), real).ptr ==
        word.data() + word.size())
        return static_cast<uint64_t>(real);
    throw Fault("no number: " + std::string(word));
}

Declared Reader::declaration() {
    Declared found;
    for (;;) {
        const std::string_view word = next();
        if (word == ".align") {
            found.alignment = static_cast<uint32_t>(number_of(next()));
        } else if (const Type type = type_of(word.substr(1));
                   word.starts_with('.') && type != Type::none) {
            found.element = bytes_of(type);
        } else if (word.starts_with('.')) {
            continue;  // ".ptr", ".attribute"
        } else {
            found.name = word;
            break;
        }
    }
    found.alignment = std::max(found.alignment, found.element);
    uint64_t count = 1;
    if (take("[")) {
        count = peek() == "]" ? 0 : number_of(next());
        expect("]");
    }
    found.bytes = static_cast<uint32_t>(count) * found.element;
    return found;
}

void Module::Parts::variable(Reader& reader) {
    const Declared declared = reader.declaration();
    Variable made;
    made.bytes = declared.bytes;
    made.memory = std::make_unique<std::byte[]>(declared.bytes + 256);
    void* at = made.memory.get();
    size_t room = declared.bytes + 256;
    made.at = static_cast<std::byte*>(std::align(256, declared.bytes, at, room));
    if (reader.take("=")) {
        const bool list = reader.take("{");
        for (uint64_t i = 0; !reader.take(list ? "}" : ";"); ++i) {
            const bool minus = reader.take("-");
            uint64_t value = number_of(reader.next());
            if (minus) value = -value;
            if ((i + 1) * declared.element > declared.bytes) throw Fault("too many values");
            std::memcpy(made.at + i * declared.element, &value, declared.element);
            (void)reader.take(",");
        }
        (void)reader.take(";");
    } else {
        reader.expect(";");
    }
    variables.emplace(declared.name, std::move(made));
}

void Module::Parts::read() {
    words = tokens(text);
    Reader reader(words, 0);
    while (!reader.ended()) {
        const std::string_view word = reader.next();
        if (word == ".target") {
            std::string_view name = reader.next();
            name.remove_prefix(std::min<size_t>(3, name.size()));  // "sm_90a"
            std::from_chars(name.data(), name.data() + name.size(), target);
        } else if (word == ".global" || word == ".const") {
            variable(reader);
        } else if (word == ".shared") {
            const Declared declared = reader.declaration();
            shared[declared.name] = declared;
            reader.expect(";");
        } else if (word == ".entry" || word == ".func") {
            std::string_view result;
            if (reader.take("(")) {  // the result
                reader.expect(".param");
                result = reader.declaration().name;
                reader.expect(")");
            }
            const std::string_view name = reader.next();
            const size_t begin = reader.at();
            // Behind parameters and directives stand the body, or ";" where only its name is told.
            while (reader.peek() != "{" && reader.peek() != ";") reader.next();
            if (reader.take(";")) continue;
            (word == ".entry" ? kernels : functions)[name] = {begin, result};
            for (int depth = 0;;) {
                const std::string_view inside = reader.next();
                depth += inside == "{" ? 1 : inside == "}" ? -1 : 0;
                if (depth == 0) break;
            }
        }
    }
}

Module::Module(std::string text) : parts_(std::make_unique<Parts>()) {
    parts_->text = std::move(text);
    parts_->read();
}
Module::~Module() = default;

const Function* Module::kernel(const std::string& name) {
    const auto found = kernels_.find(name);
    if (found != kernels_.end()) return found->second.get();
    if (!parts_->kernels.contains(name)) return nullptr;
    auto made = std::make_unique<Function>();
    made->name = name;
    try {
        decode(*parts_, name, *made);
    } catch (const Fault& fault) {
        throw Fault(name + ": " + fault.what());
    }
    return (kernels_[name] = std::move(made)).get();
}

int Module::target() const {
    return parts_->target;
}

const std::map<std::string_view, Module::Variable>& Module::variables() const {
    return parts_->variables;
}

}  // namespace granary::test::ptx

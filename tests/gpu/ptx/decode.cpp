// SPDX-License-Identifier: GPL-3.0-or-later
// From a kernel's text to instructions. Calls are put in the caller's place: there is no recursion.
#include <algorithm>
#include <optional>
#include <unordered_map>

#include "tests/gpu/ptx/reader.h"

namespace granary::test::ptx {
namespace {

uint32_t align(uint32_t at, uint32_t to) {
    return (at + to - 1) / to * to;
}

// Where a name leads.
struct Meaning {
    enum class Kind : uint8_t { reg, number, frame } kind = Kind::number;
    uint32_t at = 0;  // register, or place in the frame
    uint8_t bytes = 0;
    uint64_t number = 0;  // an address or offset
};

// "%r<12>": registers of one prefix.
struct Family {
    uint32_t first = 0, count = 0, stride = 0;
    uint8_t bytes = 0;
};

struct Scope {
    std::unordered_map<std::string_view, Meaning> names;
    std::unordered_map<std::string_view, Family> families;
    std::unordered_map<std::string_view, uint32_t> labels;
};

class Decoder final : public FunctionRoom {
  public:
    Decoder(Module::Parts& module, Function& into) : module_(module), into_(into) {}

    void kernel(std::string_view name) {
        Reader reader(module_.words, module_.kernels.at(name).word);
        scopes_.emplace_back();
        if (reader.take("(")) {
            while (!reader.take(")")) {
                reader.expect(".param");
                const Declared declared = reader.declaration();
                into_.parameter_bytes = align(into_.parameter_bytes, declared.alignment);
                Meaning meaning;
                meaning.number = into_.parameter_bytes;
                scopes_.back().names[declared.name] = meaning;
                into_.parameters.push_back(declared.bytes);
                into_.parameter_at.push_back(into_.parameter_bytes);
                into_.parameter_bytes += declared.bytes;
                (void)reader.take(",");
            }
        }
        while (reader.peek() != "{") {
            const std::string_view word = reader.next();
            if (word == ".maxntid" || word == ".reqntid") {
                into_.threads = 1;
                do into_.threads *= static_cast<uint32_t>(number_of(reader.next()));
                while (reader.take(","));
            }
        }
        into_.added_at = most_shared_bytes(reader);
        body(reader, true);
        add_exit();
        into_.shared_bytes = align(shared_bytes_, 16);
    }

    uint32_t constant(uint64_t bits, bool wide) override {
        if (!wide) bits = static_cast<uint32_t>(bits);
        const auto [found, is_new] = constants_.try_emplace({bits, wide}, 0);
        if (is_new) {
            found->second = new_register(wide ? 8 : 4);
            into_.constants.push_back({found->second, bits, wide});
        }
        return found->second;
    }

    uint32_t list(std::vector<uint32_t> registers) override {
        into_.lists.push_back(std::move(registers));
        return static_cast<uint32_t>(into_.lists.size() - 1);
    }

  private:
    // Of a kernel whose body comes next, whatever it calls.
    uint32_t most_shared_bytes(Reader reader) const {
        constexpr uint32_t kAlignment = 1024;  // of what the copy engine fills
        uint32_t bytes = 0;
        const auto add = [&](const Declared& declared) {
            bytes = align(bytes, std::max(declared.alignment, 16u)) + declared.bytes;
        };
        for (const auto& [name, declared] : module_.shared) add(declared);
        for (int depth = 0;;) {
            const std::string_view word = reader.next();
            if (word == ".shared") add(reader.declaration());
            depth += word == "{" ? 1 : word == "}" ? -1 : 0;
            if (depth == 0) return align(bytes, kAlignment);
        }
    }

    uint32_t new_register(uint32_t bytes, uint32_t count = 1) {
        const uint32_t at = into_.register_bytes;
        into_.register_bytes += count * (bytes == 0 ? 64 : bytes * kLanes);
        return at;
    }

    // From "{" to the matching "}".
    void body(Reader& reader, bool whole_function) {
        reader.expect("{");
        if (!whole_function) scopes_.emplace_back();
        const size_t first_jump = jumps_.size();
        while (!reader.take("}")) statement(reader);
        resolve_labels(first_jump, whole_function);
        if (!whole_function) scopes_.pop_back();
    }

    void statement(Reader& reader) {
        const std::string_view word = reader.peek();
        if (word == "{") return body(reader, false);
        if (word == ";") return (void)reader.next();
        if (word == ".reg") return registers(reader);
        if (word == ".pragma" || word == ".loc") return reader.skip_statement();
        if (word == ".local" || word == ".param") {
            reader.next();
            const Declared declared = reader.declaration();
            reader.expect(";");
            scopes_.back().names[declared.name] = frame_place(declared);
            return;
        }
        if (word == ".shared") {
            reader.next();
            const Declared declared = reader.declaration();
            reader.expect(";");
            scopes_.back().names[declared.name] = shared_place(declared);
            return;
        }
        if (reader.peek(1) == ":") {
            scopes_.back().labels[word] = static_cast<uint32_t>(into_.code.size());
            reader.next();
            reader.next();
            return;
        }
        operation(reader);
    }

    Meaning frame_place(const Declared& declared) {
        Meaning meaning;
        meaning.kind = Meaning::Kind::frame;
        into_.frame_bytes = align(into_.frame_bytes, std::max(declared.alignment, 4u));
        meaning.at = into_.frame_bytes;
        meaning.number = into_.frame_bytes;
        into_.frame_bytes += declared.bytes;
        return meaning;
    }

    Meaning shared_place(const Declared& declared) {
        Meaning meaning;
        shared_bytes_ = align(shared_bytes_, std::max(declared.alignment, 4u));
        meaning.number = shared_bytes_;
        shared_bytes_ += declared.bytes;
        return meaning;
    }

    void registers(Reader& reader) {
        reader.expect(".reg");
        const Type type = type_of(reader.next().substr(1));
        const auto bytes = static_cast<uint8_t>(type == Type::pred    ? 0
                                                : bytes_of(type) == 8 ? 8
                                                                      : 4);
        do {
            const std::string_view name = reader.next();
            if (reader.take("<")) {
                const auto count = static_cast<uint32_t>(number_of(reader.next()));
                reader.expect(">");
                Family family;
                family.count = count;
                family.bytes = bytes;
                family.stride = bytes == 0 ? 64 : bytes * kLanes;
                family.first = new_register(bytes, count);
                scopes_.back().families[name] = family;
            } else {
                Meaning meaning;
                meaning.kind = Meaning::Kind::reg;
                meaning.bytes = bytes;
                meaning.at = new_register(bytes);
                scopes_.back().names[name] = meaning;
            }
        } while (reader.take(","));
        reader.expect(";");
    }

    std::optional<Meaning> find(std::string_view name) {
        size_t digits = name.size();
        while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
        const size_t least = functions_.back().scope;
        for (size_t i = scopes_.size(); i-- > least;) {
            const Scope& scope = scopes_[i];
            if (const auto found = scope.names.find(name); found != scope.names.end())
                return found->second;
            if (digits == name.size()) continue;
            const auto family = scope.families.find(name.substr(0, digits));
            if (family == scope.families.end()) continue;
            const uint64_t number = number_of(name.substr(digits));
            if (number >= family->second.count) throw Fault("no register: " + std::string(name));
            Meaning meaning;
            meaning.kind = Meaning::Kind::reg;
            meaning.bytes = family->second.bytes;
            meaning.at =
                family->second.first + static_cast<uint32_t>(number) * family->second.stride;
            return meaning;
        }
        if (const auto special = special_register(name)) return special;
        if (const auto found = module_.variables.find(name); found != module_.variables.end()) {
            Meaning meaning;
            meaning.number = reinterpret_cast<uintptr_t>(found->second.at);
            return meaning;
        }
        if (const auto found = module_.shared.find(name); found != module_.shared.end()) {
            const auto [place, is_new] = module_shared_.try_emplace(name);
            if (is_new && found->second.bytes > 0) place->second = shared_place(found->second);
            if (is_new && found->second.bytes == 0) place->second.number = into_.added_at;
            return place->second;
        }
        return {};
    }

    std::optional<Meaning> special_register(std::string_view name) {
        static const std::map<std::string_view, Special> specials{
            {"%tid.x", Special::tid_x},       {"%tid.y", Special::tid_y},
            {"%tid.z", Special::tid_z},       {"%ntid.x", Special::ntid_x},
            {"%ntid.y", Special::ntid_y},     {"%ntid.z", Special::ntid_z},
            {"%ctaid.x", Special::ctaid_x},   {"%ctaid.y", Special::ctaid_y},
            {"%ctaid.z", Special::ctaid_z},   {"%nctaid.x", Special::nctaid_x},
            {"%nctaid.y", Special::nctaid_y}, {"%nctaid.z", Special::nctaid_z},
            {"%laneid", Special::laneid}};
        const auto found = specials.find(name);
        if (found == specials.end()) return {};
        const auto [place, is_new] = specials_.try_emplace(found->second);
        if (is_new) {
            place->second.kind = Meaning::Kind::reg;
            place->second.bytes = 4;
            place->second.at = new_register(4);
            into_.specials.push_back({place->second.at, found->second});
        }
        return place->second;
    }

    Operand operand(Reader& reader) {
        Operand found;
        if (reader.take("{")) {
            found.kind = Operand::Kind::vector;
            while (!reader.take("}")) {
                found.parts.push_back(operand(reader));
                (void)reader.take(",");
            }
            return found;
        }
        if (reader.take("[")) {
            found = operand(reader);
            if (found.kind == Operand::Kind::number) found.at = kNoGuard;
            found.kind = Operand::Kind::address;
            for (; reader.peek() == "+" || reader.peek() == "-";) {
                bool minus = false;
                while (reader.peek() == "+" || reader.peek() == "-") minus ^= reader.next() == "-";
                const uint64_t offset = number_of(reader.next());
                found.number += minus ? -offset : offset;
            }
            if (reader.take(",")) found.parts.push_back(operand(reader));  // of a tensor copy
            reader.expect("]");
            return found;
        }
        if (reader.take("!")) {
            found = operand(reader);
            found.negated = true;
            return found;
        }
        if (reader.take("-")) {
            found.kind = Operand::Kind::number;
            found.number = -number_of(reader.next());
            return found;
        }
        const std::string_view word = reader.next();
        if (word == "_") return found;
        if (word[0] >= '0' && word[0] <= '9') {
            found.kind = Operand::Kind::number;
            found.number = number_of(word);
            return found;
        }
        const auto meaning = find(word);
        if (!meaning) throw Fault("no such name: " + std::string(word));
        found.number = meaning->number;
        found.in_frame = meaning->kind == Meaning::Kind::frame;
        if (meaning->kind == Meaning::Kind::reg) {
            found.kind = Operand::Kind::reg;
            found.at = meaning->at;
            found.bytes = meaning->bytes;
        } else {
            found.kind = Operand::Kind::number;
        }
        if (reader.take("|")) found.parts.push_back(operand(reader));
        return found;
    }

    void operation(Reader& reader) {
        Instruction made;
        if (reader.take("@")) {
            made.unless = reader.take("!");
            const auto meaning = find(reader.peek());
            if (!meaning || meaning->kind != Meaning::Kind::reg)
                throw Fault("no predicate: " + std::string(reader.peek()));
            made.guard = meaning->at;
            reader.next();
        }
        Operation operation;
        operation.text = reader.next();
        operation.parts = split_at_dots(operation.text);
        made.text = operation.text;
        const std::string_view name = operation.parts.at(0);
        if (name == "call") return call(reader, made);
        if (name == "bra") {
            made.control = Control::branch;
            jumps_.push_back({into_.code.size(), reader.next()});
            reader.expect(";");
            into_.code.push_back(made);
            return;
        }
        if (name == "ret" || name == "exit") {
            reader.expect(";");
            if (name == "exit" || functions_.size() == 1) return add_exit(made);
            made.control = Control::branch;
            functions_.back().returns.push_back(into_.code.size());
            into_.code.push_back(made);
            return;
        }
        while (!reader.take(";")) {
            operation.operands.push_back(operand(reader));
            (void)reader.take(",");
        }
        build(operation, made);
    }

    void build(const Operation& operation, Instruction& made) {
        static constexpr auto kFamilies = {
            arithmetic_builder, bits_builder, move_builder,   convert_builder, memory_builder,
            copy_builder,       warp_builder, matrix_builder, barrier_builder, warpgroup_builder};
        for (const auto family : kFamilies) {
            const Builder builder = family(operation.parts[0]);
            if (!builder) continue;
            builder(operation, *this, made);
            if (made.control == Control::nothing) return;
            if (!made.run) operation.unknown("not of this type");
            into_.code.push_back(made);
            return;
        }
        operation.unknown("not known");
    }

    void add_exit(Instruction made = {}) {
        made.control = Control::exit;
        into_.code.push_back(made);
    }

    void call(Reader& reader, const Instruction& guard) {
        if (guard.guard != kNoGuard) throw Fault("a call under a guard");
        std::vector<Meaning> results, given;
        const auto list = [&](std::vector<Meaning>& to) {
            while (!reader.take(")")) {
                const auto meaning = find(reader.next());
                if (!meaning) throw Fault("no such parameter");
                to.push_back(*meaning);
                (void)reader.take(",");
            }
        };
        if (reader.take("(")) {
            list(results);
            reader.expect(",");
        }
        const std::string_view name = reader.next();
        if (reader.take(",")) {
            reader.expect("(");
            list(given);
        }
        reader.expect(";");
        const auto found = module_.functions.find(name);
        if (found == module_.functions.end()) throw Fault("no function: " + std::string(name));
        if (functions_.size() > 8) throw Fault("calls are too deep: " + std::string(name));

        Reader inside(module_.words, found->second.word);
        scopes_.emplace_back();
        functions_.push_back({scopes_.size() - 1, {}});
        if (!results.empty()) scopes_.back().names[found->second.result] = results[0];
        inside.expect("(");
        for (size_t i = 0; !inside.take(")"); ++i) {
            inside.expect(".param");
            const Declared declared = inside.declaration();
            scopes_.back().names[declared.name] = given.at(i);
            (void)inside.take(",");
        }
        while (inside.peek() != "{") inside.next();
        body(inside, true);
        for (const size_t at : functions_.back().returns)
            into_.code[at].target = static_cast<uint32_t>(into_.code.size());
        functions_.pop_back();
        scopes_.pop_back();
    }

    // Of the jumps from `first` on those to labels of the innermost braces, whose end this is; the
    // others lead further out.
    void resolve_labels(size_t first, bool all) {
        const auto& labels = scopes_.back().labels;
        const auto begin = jumps_.begin() + static_cast<ptrdiff_t>(first);
        jumps_.erase(std::remove_if(begin, jumps_.end(),
                                    [&](const Jump& jump) {
                                        const auto found = labels.find(jump.label);
                                        if (found == labels.end()) return false;
                                        into_.code[jump.at].target = found->second;
                                        return true;
                                    }),
                     jumps_.end());
        if (all && jumps_.size() > first)
            throw Fault("no label: " + std::string(jumps_[first].label));
    }

    struct Inside {
        size_t scope;                 // the first of its own
        std::vector<size_t> returns;  // jumps to its end
    };
    struct Jump {
        size_t at;
        std::string_view label;
    };

    Module::Parts& module_;
    Function& into_;
    std::vector<Scope> scopes_;
    std::vector<Inside> functions_{{0, {}}};  // the kernel, and calls that it is in
    std::vector<Jump> jumps_;
    std::map<std::pair<uint64_t, bool>, uint32_t> constants_;
    std::map<Special, Meaning> specials_;
    std::map<std::string_view, Meaning> module_shared_;
    uint32_t shared_bytes_ = 0;
};

}  // namespace

void decode(Module::Parts& module, std::string_view kernel, Function& into) {
    Decoder(module, into).kernel(kernel);
}

}  // namespace granary::test::ptx

// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/text/template/interpreter.h"

#include "engine/text/template/operators.h"
#include "engine/text/template/text_form.h"

namespace granary::jinja {

namespace {

Value function(std::string name, Global target) {
    auto function = std::make_shared<Function>();
    function->name = std::move(name);
    function->target = target;
    return Ref<const Function>(std::move(function));
}

}  // namespace

Interpreter::Interpreter(const Program& program, Workspace& workspace,
                         const nlohmann::ordered_json& context)
    : program_(program), workspace_(workspace), globals_(program.names.size()) {
    for (NameId id = 0; id < program.names.size(); ++id) {
        const std::string& name = program.names[id];
        if (const auto found = context.find(name); found != context.end() && name != "now") {
            globals_[id] = from_json(workspace, *found);
        } else if (const Global global = find_global(name)) {
            globals_[id] = function(name, global);
        }
    }
}

std::string Interpreter::run() {
    TextBuilder out(workspace_);
    out_ = &out;
    run(program_.body);
    return out.take();
}

const Value* Interpreter::find(NameId name) {
    for (Frame* frame = frame_.get(); frame != nullptr; frame = frame->parent.get()) {
        workspace_.step(frame->slots.size() / 16);
        if (const Value* value = frame->find(name)) return value;
    }
    return globals_[name] ? &*globals_[name] : nullptr;
}

void Interpreter::assign(NameId name, Value value) {
    if (frame_ != nullptr) {
        frame_->set(name, std::move(value));
    } else {
        globals_[name] = std::move(value);
    }
}

void Interpreter::assign(const Target& target, const Value& value) {
    workspace_.at = target.at;
    if (target.is_tuple) {
        const std::vector<Value> items = iterate(workspace_, value);
        if (items.size() != target.parts.size()) {
            stop("cannot unpack " + std::to_string(items.size()) + " values into " +
                 std::to_string(target.parts.size()) + " names");
        }
        for (size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i]);
        return;
    }
    if (target.attribute.empty()) return assign(target.name, value);
    const Value* owner = find(target.name);
    Namespace* space = owner != nullptr ? owner->name_space() : nullptr;
    if (space == nullptr) {
        stop("cannot assign to '" + program_.names[target.name] + "." + target.attribute + "': '" +
             program_.names[target.name] + "' is no namespace");
    }
    if (Value* attribute = space->find(target.attribute)) {
        *attribute = value;
    } else {
        workspace_.step(space->attributes.size());
        space->charge.add(sizeof(std::pair<std::string, Value>) + target.attribute.size());
        space->attributes.emplace_back(target.attribute, value);
    }
}

Interpreter::Flow Interpreter::run(const Block& block) {
    for (const Statement& statement : block) {
        if (const Flow flow = run(statement); flow != Flow::normal) return flow;
    }
    return Flow::normal;
}

Interpreter::Flow Interpreter::run(const Statement& statement) {
    workspace_.step();
    workspace_.at = statement.at;
    return std::visit([this](const auto& node) { return run(node); }, statement.node);
}

Interpreter::Flow Interpreter::run(const Output& node) {
    *out_ << node.text;
    return Flow::normal;
}

Interpreter::Flow Interpreter::run(const Print& node) {
    const Value value = evaluate(*node.value);
    workspace_.at = node.value->at;
    append_text(*out_, value);
    return Flow::normal;
}

Interpreter::Flow Interpreter::run(const If& node) {
    for (const auto& [test, body] : node.branches) {
        if (truthy(evaluate(*test))) return run(body);
    }
    return run(node.otherwise);
}

Interpreter::Flow Interpreter::run(const For& node) {
    run_loop(node, evaluate(*node.iterable), 0);
    return Flow::normal;
}

void Interpreter::run_loop(const For& node, const Value& iterable, int depth0) {
    workspace_.at = node.iterable->at;
    const auto loop = std::make_shared<Loop>();
    // The functions below refer to this call, so the loop must not keep them when it is over.
    const std::unique_ptr<Loop, void (*)(Loop*)> release(loop.get(), [](Loop* l) { l->release(); });
    if (const Sequence* sequence = iterable.sequence()) {
        loop->iterable = iterable;
        loop->items = &sequence->items;
    } else {
        loop->own = iterate(workspace_, iterable);
        loop->items = &loop->own;
    }
    loop->sized = !node.filter && iterable.iterator() == nullptr;
    loop->depth0 = depth0;

    const Ref<Frame> outer = frame_;
    Ref<Frame> turn;  // used again for the next item unless a macro keeps it
    const auto enter = [&](const Value& item) {
        frame_ = nullptr;
        if (turn.use_count() == 1) {
            turn->slots.clear();
        } else {
            turn = std::make_shared<Frame>();
            turn->parent = outer;
        }
        frame_ = turn;
        assign(node.target, item);
    };
    if (node.filter) {
        loop->accepts = [this, &node, &outer](const Value& item) {
            workspace_.step();
            const Ref<Frame> here = frame_;
            frame_ = std::make_shared<Frame>();
            frame_->parent = outer;
            assign(node.target, item);
            const bool accepted = truthy(evaluate(*node.filter));
            frame_ = here;
            return accepted;
        };
    }
    if (node.recursive) {
        loop->recurse = [this, &node, &outer, depth0](const Value& children) {
            const Ref<Frame> here = std::exchange(frame_, outer);
            TextBuilder inner(workspace_);
            TextBuilder* const out = std::exchange(out_, &inner);
            run_loop(node, children, depth0 + 1);
            out_ = out;
            frame_ = here;
            return workspace_.text(inner.take());
        };
    }

    bool empty = true;
    while (loop->advance()) {
        workspace_.step();
        enter(loop->current);
        frame_->set(Program::loop, Ref<Loop>(loop));
        const Flow flow = run(node.body);
        if (flow == Flow::leave_loop) break;
        // As in Jinja, a turn that 'continue' cuts short does not count for 'else'.
        if (flow == Flow::normal) empty = false;
    }
    frame_ = outer;
    if (empty && !node.otherwise.empty()) {
        frame_ = std::make_shared<Frame>();
        frame_->parent = outer;
        run(node.otherwise);
        frame_ = outer;
    }
}

Interpreter::Flow Interpreter::run(const Set& node) {
    const Value value = evaluate(*node.value);
    assign(node.target, value);
    return Flow::normal;
}

Interpreter::Flow Interpreter::run(const SetBlock& node) {
    Value value = workspace_.text(capture(node.body));
    assign(node.target, filtered(std::move(value), node.filters));
    return Flow::normal;
}

Interpreter::Flow Interpreter::run(const std::unique_ptr<const Macro>& node) {
    assign(node->name, closure(*node, program_.names[node->name]));
    return Flow::normal;
}

Value Interpreter::closure(const Macro& macro, std::string name) {
    if (frame_ != nullptr) workspace_.keep_frame(frame_);
    auto function = std::make_shared<Function>();
    function->name = std::move(name);
    function->target = Closure{&macro, frame_};
    return Ref<const Function>(std::move(function));
}

Interpreter::Flow Interpreter::run(const CallBlock& node) {
    const Call& block_call = std::get<Call>(node.call->node);
    const Value callee = evaluate(*block_call.callee);
    Arguments arguments = evaluate(block_call.arguments);
    arguments.named.emplace_back("caller", closure(*node.caller, "caller"));
    workspace_.at = node.call->at;
    append_text(*out_, call(callee, arguments));
    return Flow::normal;
}

Interpreter::Flow Interpreter::run(const FilterBlock& node) {
    Value value = workspace_.text(capture(node.body));
    append_text(*out_, filtered(std::move(value), node.filters));
    return Flow::normal;
}

Interpreter::Flow Interpreter::run(const With& node) {
    std::vector<Value> values;
    for (const auto& [target, value] : node.values) values.push_back(evaluate(*value));
    const Ref<Frame> outer = frame_;
    frame_ = std::make_shared<Frame>();
    frame_->parent = outer;
    for (size_t i = 0; i < values.size(); ++i) assign(node.values[i].first, values[i]);
    const Flow flow = run(node.body);
    frame_ = outer;
    return flow;
}

Interpreter::Flow Interpreter::run(const Scope& node) {
    const Ref<Frame> outer = frame_;
    frame_ = std::make_shared<Frame>();
    frame_->parent = outer;
    run(node.body);
    frame_ = outer;
    return Flow::normal;
}

std::string Interpreter::capture(const Block& block) {
    TextBuilder inner(workspace_);
    TextBuilder* const out = std::exchange(out_, &inner);
    const Ref<Frame> outer = frame_;
    frame_ = std::make_shared<Frame>();
    frame_->parent = outer;
    run(block);
    frame_ = outer;
    out_ = out;
    return inner.take();
}

Value Interpreter::filtered(Value value, const std::vector<FilterCall>& filters) {
    for (const FilterCall& filter : filters) {
        value = filter.filter(workspace_, value, evaluate(filter.arguments));
    }
    return value;
}

Value Interpreter::call(const Value& callee, const Arguments& arguments) {
    if (const Function* function = callee.function()) {
        if (const auto* global = std::get_if<Global>(&function->target)) {
            return (*global)(workspace_, arguments);
        }
        if (const auto* bound = std::get_if<BoundMethod>(&function->target)) {
            return bound->method(workspace_, bound->self, arguments);
        }
        const Value keep = callee;  // the call may replace the variable that holds the macro
        return call(std::get<Closure>(function->target), function->name, arguments);
    }
    if (Loop* loop = callee.loop()) {
        if (!loop->recurse) stop("the loop is not marked 'recursive', so it cannot be called");
        if (arguments.positional.size() != 1) stop("a recursive loop takes one sequence");
        if (call_depth_ >= workspace_.limits().call_depth) {
            stop("loops and macros nested deeper than " +
                     std::to_string(workspace_.limits().call_depth),
                 ErrorKind::refused);
        }
        ++call_depth_;
        Value result = loop->recurse(arguments.positional[0]);
        --call_depth_;
        return result;
    }
    if (const Absence* absence = callee.absence()) stop(absence->message());
    stop("'" + std::string(type_name(callee)) + "' object is not callable");
}

Value Interpreter::call(const Closure& closure, const std::string& name,
                        const Arguments& arguments) {
    const Macro& macro = *closure.macro;
    if (call_depth_ >= workspace_.limits().call_depth) {
        stop("macros call each other deeper than " + std::to_string(workspace_.limits().call_depth),
             ErrorKind::refused);
    }
    ++call_depth_;
    auto frame = std::make_shared<Frame>();
    frame->parent = closure.frame;
    std::vector<std::pair<std::string, Value>> named = arguments.named;
    const auto take_named = [&](std::string_view key) -> std::optional<Value> {
        workspace_.step(named.size());
        for (auto it = named.begin(); it != named.end(); ++it) {
            if (it->first != key) continue;
            std::optional<Value> value = std::move(it->second);
            named.erase(it);
            return value;
        }
        return std::nullopt;
    };
    const size_t count = macro.parameters.size();
    std::vector<const Parameter*> missing;
    bool explicit_caller = false;
    for (size_t i = 0; i < count; ++i) {
        const Parameter& parameter = macro.parameters[i];
        explicit_caller |= parameter.name == Program::caller;
        if (i < arguments.positional.size()) {
            frame->set(parameter.name, arguments.positional[i]);
        } else if (auto value = take_named(program_.names[parameter.name])) {
            frame->set(parameter.name, std::move(*value));
        } else {
            missing.push_back(&parameter);
        }
    }
    if (macro.uses_caller && !explicit_caller) {
        auto caller = take_named("caller");
        frame->set(Program::caller,
                   caller ? std::move(*caller)
                          : workspace_.absent(Absence::Why::hint, "macro", "No caller defined"));
    }
    if (macro.uses_kwargs) {
        std::vector<std::pair<Value, Value>> entries;
        for (auto& [key, value] : named) entries.emplace_back(workspace_.text(key), value);
        named.clear();
        frame->set(Program::kwargs, workspace_.mapping(std::move(entries)));
    }
    if (!named.empty()) {
        stop("macro '" + name + "' takes no keyword argument '" + named.front().first + "'");
    }
    if (macro.uses_varargs) {
        std::vector<Value> rest;
        for (size_t i = count; i < arguments.positional.size(); ++i) {
            rest.push_back(arguments.positional[i]);
        }
        frame->set(Program::varargs, workspace_.tuple(std::move(rest)));
    } else if (arguments.positional.size() > count) {
        stop("macro '" + name + "' takes not more than " + std::to_string(count) + " argument(s)");
    }

    const Ref<Frame> outer = std::exchange(frame_, std::move(frame));
    for (const Parameter* parameter : missing) {
        assign(parameter->name,
               parameter->fallback
                   ? evaluate(*parameter->fallback)
                   : workspace_.absent(
                         Absence::Why::hint, "macro",
                         "parameter '" + program_.names[parameter->name] + "' was not provided"));
    }
    TextBuilder inner(workspace_);
    TextBuilder* const out = std::exchange(out_, &inner);
    run(macro.body);
    out_ = out;
    frame_ = outer;
    --call_depth_;
    return workspace_.text(inner.take());
}

}  // namespace granary::jinja

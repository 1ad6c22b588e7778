// SPDX-License-Identifier: GPL-3.0-or-later
#include "granary/chat_template.h"

#include <new>

#include "engine/text/template/interpreter.h"
#include "engine/text/template/parser.h"

namespace granary {

struct ChatTemplate::Impl {
    jinja::Limits limits;
    jinja::Program program;
};

namespace {

Error error_of(const jinja::Failure& failure, jinja::Position where) {
    Error error{failure.kind, failure.what, {}, {}};
    if (failure.at.line != 0) where = failure.at;
    if (where.line != 0) {
        error.detail = "line " + std::to_string(where.line) + ", column " +
                       std::to_string(where.column) + " of the chat template";
    }
    return error;
}

}  // namespace

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

Result<ChatTemplate> ChatTemplate::parse(std::string_view source) {
    try {
        auto impl = std::make_unique<Impl>();
        impl->program = jinja::parse(source, impl->limits);
        return ChatTemplate(std::move(impl));
    } catch (const jinja::Failure& failure) {
        return tl::unexpected(error_of(failure, {}));
    } catch (const std::bad_alloc&) {
        return fail(ErrorKind::out_of_memory, "no memory to read a chat template");
    }
}

Result<std::string> ChatTemplate::render(const nlohmann::ordered_json& context) const {
    if (!context.is_object()) {
        return fail(ErrorKind::invalid_argument, "the context of a chat template is no object");
    }
    std::optional<std::string> now;
    if (const auto found = context.find("now"); found != context.end() && !found->is_null()) {
        if (!found->is_string()) {
            return fail(ErrorKind::invalid_argument, "'now' of the context is no text",
                        found->type_name(), "Write it as 2026-01-31T23:59:59");
        }
        now = found->get<std::string>();
    }
    jinja::Workspace workspace(impl_->limits, std::move(now));
    try {
        return jinja::Interpreter(impl_->program, workspace, context).run();
    } catch (const jinja::Failure& failure) {
        return tl::unexpected(error_of(failure, workspace.at));
    } catch (const std::bad_alloc&) {
        return fail(ErrorKind::out_of_memory, "no memory to render a chat template");
    }
}

}  // namespace granary

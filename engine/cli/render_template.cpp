// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/cli/render_template.h"

#include <nlohmann/json.hpp>

#include "engine/cli/common.h"
#include "engine/gguf/file.h"
#include "granary/chat_template.h"

namespace granary::cli {

namespace {

constexpr uint64_t kMostTemplateBytes = uint64_t{1} << 20;
constexpr uint64_t kMostContextBytes = uint64_t{64} << 20;

Result<std::string> template_source(const TemplateOptions& options) {
    if (options.template_file) return read_file(*options.template_file, kMostTemplateBytes);
    const auto file = gguf::File::open(*options.model);
    if (!file) return tl::unexpected(file.error());
    const auto source = (*file)->find_string("tokenizer.chat_template");
    if (!source) return tl::unexpected(source.error());
    if (!*source) {
        return fail(ErrorKind::invalid_file, "the model has no chat template", *options.model,
                    "Name a file with one: --template FILE");
    }
    return std::string(**source);
}

Result<std::string> rendered(const TemplateOptions& options) {
    const auto source = template_source(options);
    if (!source) return tl::unexpected(source.error());
    const auto chat_template = ChatTemplate::parse(*source);
    if (!chat_template) return tl::unexpected(chat_template.error());
    const auto text = read_file(options.context_file, kMostContextBytes);
    if (!text) return tl::unexpected(text.error());
    const auto context = nlohmann::ordered_json::parse(*text, nullptr, false);
    if (!context.is_object()) {
        return fail(ErrorKind::invalid_file, "the context is not a JSON object",
                    options.context_file);
    }
    return chat_template->render(context);
}

}  // namespace

int render_template(const TemplateOptions& options, std::ostream& out, std::ostream& err) {
    if (options.model.has_value() == options.template_file.has_value()) {
        err << "granary-cli: name one template, by MODEL or with --template\n";
        return kUsage;
    }
    const auto prompt = rendered(options);
    if (!prompt) {
        const int code = report_error(prompt.error(), err);
        // The command line was fine: what it names cannot be used.
        return code == kUsage ? kBadInput : code;
    }
    out << *prompt;
    return kOk;
}

}  // namespace granary::cli

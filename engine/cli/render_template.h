// SPDX-License-Identifier: GPL-3.0-or-later
// granary-cli template: the prompt that a chat template makes of a context.
#pragma once

#include <optional>
#include <ostream>
#include <string>

namespace granary::cli {

struct TemplateOptions {
    std::optional<std::string> model;          // a GGUF file with a chat template: one of this and
    std::optional<std::string> template_file;  // a file of plain Jinja text
    std::string context_file;                  // a JSON object: messages, tools, bos_token, ...
};

// Prints the rendered prompt and nothing else to `out`. A template that raises, a template or
// context that cannot be read: a message on `err` and the exit code of such an input.
int render_template(const TemplateOptions& options, std::ostream& out, std::ostream& err);

}  // namespace granary::cli

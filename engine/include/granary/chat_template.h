// SPDX-License-Identifier: GPL-3.0-or-later
// A model's own Jinja chat template.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "gpu/error.h"

namespace granary {

class ChatTemplate {
  public:
    // Parses; an error names the construct, line and column that cannot run.
    static Result<ChatTemplate> parse(std::string_view source);
    ~ChatTemplate();
    ChatTemplate(ChatTemplate&&) noexcept;
    ChatTemplate& operator=(ChatTemplate&&) noexcept;

    // context: messages, tools, add_generation_prompt, bos_token, eos_token and whatever else the
    // template reads; "now" (ISO 8601) fixes the clock of strftime_now. Bounded in steps, depth
    // and output (a template comes from a file that nobody vouches for). A template that raises
    // gives its message as `what`, kind invalid_argument.
    Result<std::string> render(const nlohmann::ordered_json& context) const;

  private:
    struct Impl;
    explicit ChatTemplate(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace granary

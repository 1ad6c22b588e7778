// SPDX-License-Identifier: GPL-3.0-or-later
// Answer text on its way from the engine's thread to the window: the writer appends tokens, the
// reader takes all of them at its own pace, so that no signal is sent per token.
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace granary::gui {

class TextBuffer {
  public:
    // True if the buffer was empty since clear(): the first text of an answer.
    bool append(std::string_view text) {
        const std::lock_guard lock(m_mutex);
        m_text.append(text);
        return !std::exchange(m_begun, true);
    }
    std::string take() {
        const std::lock_guard lock(m_mutex);
        return std::exchange(m_text, {});
    }
    void clear() {
        const std::lock_guard lock(m_mutex);
        m_text.clear();
        m_begun = false;
    }

  private:
    std::mutex m_mutex;
    std::string m_text;
    bool m_begun = false;
};

}  // namespace granary::gui

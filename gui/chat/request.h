// SPDX-License-Identifier: GPL-3.0-or-later
// From messages of a chat to what the engine reads.
#pragma once

#include <QVector>

#include "granary/engine.h"
#include "gui/chat/chat_types.h"

namespace granary::gui {

// Documents stand before the question that came with them, parted by an empty line; several are
// headed by their names.
std::string contentOf(const ChatMessage& message);

// continueLast: the last message is an answer that goes on.
Request makeRequest(const QVector<ChatMessage>& messages, const ChatOptions& options,
                    bool continueLast);

}  // namespace granary::gui

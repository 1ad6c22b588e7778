// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/chat/request.h"

#include <QRandomGenerator>

namespace granary::gui {

std::string contentOf(const ChatMessage& message) {
    std::string content;
    for (const Document& document : message.documents) {
        if (!document.text) continue;
        if (message.documents.size() > 1) {
            content += "Document: " + document.label().toStdString() + "\n\n";
        }
        content.append(document.text->constData(), static_cast<size_t>(document.text->size()));
        content += "\n\n";
    }
    return content + message.text.toStdString();
}

Request makeRequest(const QVector<ChatMessage>& messages, const ChatOptions& options,
                    bool continueLast) {
    Request request;
    const QString system = options.systemPrompt.trimmed();
    if (!system.isEmpty()) request.messages.push_back({"system", system.toStdString()});
    for (const ChatMessage& message : messages) {
        request.messages.push_back({roleName(message.role).toStdString(), contentOf(message)});
    }
    request.continue_last = continueLast;
    request.sampling.temperature = static_cast<float>(options.temperature);
    if (options.temperature > 0) {
        request.sampling.top_p = 0.95f;
        request.sampling.top_k = 40;
        request.sampling.seed = QRandomGenerator::global()->generate64();
    }
    return request;
}

}  // namespace granary::gui

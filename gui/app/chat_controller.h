// SPDX-License-Identifier: GPL-3.0-or-later
// One conversation between window, store and engine: what is sent, what becomes of it, what is
// kept. The window shows; this decides.
#pragma once

#include <QElapsedTimer>
#include <QObject>
#include <QTimer>

#include "gui/chat/chat_types.h"
#include "gui/engine/engine_types.h"

namespace granary::gui {

class ChatPane;
class ChatsPanel;
class DocumentTray;
class EngineController;
class Library;

class ChatController : public QObject {
    Q_OBJECT

  public:
    ChatController(EngineController& engine, Library& library, ChatPane& pane, ChatsPanel& panel,
                   DocumentTray& tray, QObject* parent = nullptr);
    ~ChatController() override;

    const QVector<ChatMessage>& messages() const { return m_messages; }
    const ChatOptions& options() const { return m_options; }
    // Temperature of new chats; that of a chat that is still empty follows.
    void setDefaultTemperature(double temperature);

    // Something was sent and its fate is not known yet.
    bool pending() const { return m_asking != Asking::nothing || m_sendWhenReady; }
    // The last message is not stored to its end yet: its end is handled after the engine's Idle, and
    // its row may come later still.
    bool answering() const {
        return m_answering || (!m_messages.isEmpty() && m_messages.back().id == 0);
    }
    bool canSend() const;
    bool canRegenerate() const;
    bool canContinue() const;
    bool editing() const { return m_editing; }

    void send();  // what stands in the input
    void sendQuestion(const QString& question);
    void continueAnswer();
    void regenerate();
    void editLast();
    void cancelEdit();
    void newChat();
    void openChat(qint64 chat);

    // From Enter to the first text in the window, of the last answer; -1: none yet.
    double msToFirstText() const { return m_msToFirstText; }
    double msToAnswer() const { return m_msToAnswer; }  // from Enter to its end

  Q_SIGNALS:
    void changed();  // messages, or what can be done with them
    void editingBegan();
    void questionSent(const QString& question);
    void answered(const granary::Report& report);
    void refused(const granary::Error& error);
    void failed(const granary::Error& error, bool engineLost);
    void storeFailed(const granary::Error& error);

  private:
    enum class Asking { nothing, storing, question, again, more };

    void sendNow(const QString& text, bool fromInput);
    void askStored();
    void admitted();
    void onText(const QString& more);
    void onFinished(const Report& report);
    void endAnswer(Ending ending);
    void savePieces();
    void flushAnswer();
    void trySendWhenReady();
    void refuse(const char* what, const char* advice);
    void forgetQuestion();
    int lastQuestion() const;
    QString titleOf(const ChatMessage& question) const;

    static constexpr int kSaveMs = 1000;

    EngineController& m_engine;
    Library& m_library;
    ChatPane& m_pane;
    ChatsPanel& m_panel;
    DocumentTray& m_tray;

    qint64 m_chat = 0;  // 0: not stored yet
    QString m_title;
    QVector<ChatMessage> m_messages;
    ChatOptions m_options;
    double m_defaultTemperature = 0;

    Asking m_asking = Asking::nothing;
    ChatMessage m_question;        // being sent
    bool m_fromInput = false;      // the question stands in the input
    bool m_chatIsNew = false;      // the chat was made for this question
    bool m_editing = false;        // the last question is being written anew
    bool m_sendWhenReady = false;  // Enter was pressed before the model or a document was ready
    QString m_queued;              // a question that waits with it; null: the input
    bool m_answering = false;      // the last message grows
    bool m_closing = false;
    QString m_unsaved;             // text not handed to the store yet
    QTimer m_save;
    QElapsedTimer m_sent;
    double m_msToFirstText = -1;
    double m_msToAnswer = -1;
    bool m_firstText = false;
};

}  // namespace granary::gui

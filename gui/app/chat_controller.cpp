// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/chat_controller.h"

#include <QAccessible>
#include <QDateTime>

#include "gui/chat/chat_pane.h"
#include "gui/chat/composer.h"
#include "gui/chat/message_view.h"
#include "gui/chat/options_sheet.h"
#include "gui/chat/request.h"
#include "gui/chat/transcript.h"
#include "gui/documents/document_tray.h"
#include "gui/engine/engine_controller.h"
#include "gui/library/chats_panel.h"
#include "gui/library/library.h"

namespace granary::gui {

namespace {

Ending endingOf(Finish finish) {
    switch (finish) {
        case Finish::answer_ended:
            return Ending::answered;
        case Finish::token_limit:
            return Ending::tokenLimit;
        case Finish::context_full:
            return Ending::contextFull;
        case Finish::stopped:
            return Ending::stopped;
    }
    return Ending::answered;
}

}  // namespace

ChatController::ChatController(EngineController& engine, Library& library, ChatPane& pane,
                               ChatsPanel& panel, DocumentTray& tray, QObject* parent)
    : QObject(parent),
      m_engine(engine),
      m_library(library),
      m_pane(pane),
      m_panel(panel),
      m_tray(tray) {
    m_save.setInterval(kSaveMs);
    connect(&m_save, &QTimer::timeout, this, &ChatController::savePieces);

    connect(&engine, &EngineController::stateChanged, this, [this](State state) {
        if (state == State::reading) admitted();
        m_pane.transcript()->setBusy(m_engine.busy());
        m_panel.setLocked(m_engine.busy() || pending());
        trySendWhenReady();
        Q_EMIT changed();
    });
    connect(&engine, &EngineController::readProgress, this,
            [this](quint32 done, quint32 total, double eta) {
                if (MessageView* view = m_pane.transcript()->last(); view && m_answering) {
                    view->setProgress(done, total, eta);
                }
            });
    connect(&engine, &EngineController::read, this, [this] {
        if (!m_answering) return;
        if (MessageView* view = m_pane.transcript()->last()) view->setProgress(0, 0, 0);
    });
    connect(&engine, &EngineController::text, this, &ChatController::onText);
    connect(&engine, &EngineController::finished, this, &ChatController::onFinished);
    connect(&engine, &EngineController::refused, this, [this](const Error& error) {
        if (m_asking == Asking::question) forgetQuestion();
        m_asking = Asking::nothing;
        Q_EMIT refused(error);
        Q_EMIT changed();
    });
    connect(&engine, &EngineController::failed, this, [this](const Error& error, bool lost) {
        m_asking = Asking::nothing;
        if (m_answering) endAnswer(Ending::failed);
        Q_EMIT failed(error, lost);
        Q_EMIT changed();
    });
    connect(&tray, &DocumentTray::changed, this, [this] {
        m_engine.edit();
        trySendWhenReady();
        Q_EMIT changed();
    });
    connect(pane.composer(), &Composer::edited, this, [this] {
        m_engine.edit();
        Q_EMIT changed();
    });
    connect(pane.options(), &OptionsSheet::optionsChanged, this,
            [this](const ChatOptions& options) {
                m_options = options;
                if (m_chat == 0) return;
                m_library.run([chat = m_chat, options](ChatStore& store) {
                    return store.setOptions(chat, options);
                });
            });
    Transcript* transcript = pane.transcript();
    connect(transcript, &Transcript::editRequested, this, &ChatController::editLast);
    connect(transcript, &Transcript::regenerateRequested, this, &ChatController::regenerate);
    connect(transcript, &Transcript::continueRequested, this, &ChatController::continueAnswer);

    connect(&panel, &ChatsPanel::chosen, this, &ChatController::openChat);
    connect(&panel, &ChatsPanel::renamed, this, [this](qint64 chat, const QString& title) {
        if (chat == m_chat) m_title = title;
        m_library.run([chat, title](ChatStore& store) { return store.renameChat(chat, title); });
    });
    connect(&panel, &ChatsPanel::deleted, this, [this](qint64 chat) {
        m_library.run([chat](ChatStore& store) { return store.deleteChat(chat, true); });
        if (chat == m_chat) newChat();
    });
    connect(&panel, &ChatsPanel::restored, this, [this](qint64 chat) {
        m_library.run([chat](ChatStore& store) { return store.deleteChat(chat, false); });
        openChat(chat);
    });
    connect(&library, &Library::failed, this, &ChatController::storeFailed);
    library.run(
        this, [](ChatStore& store) { return store.chats(200); },
        [this](const Result<QVector<ChatSummary>>& chats) {
            if (chats) m_panel.model()->setChats(*chats);
        });
}

ChatController::~ChatController() {
    // The engine has ended and told all that it had to tell. What is being stored meanwhile is
    // told, too: without its row an answer cannot be stored.
    m_closing = true;
    m_library.settle();
    if (m_answering) flushAnswer();
}

void ChatController::setDefaultTemperature(double temperature) {
    m_defaultTemperature = temperature;
    if (!m_messages.isEmpty()) return;
    m_options.temperature = temperature;
    m_pane.options()->setOptions(m_options);
}

bool ChatController::canSend() const {
    const State state = m_engine.state();
    return (state == State::idle || state == State::loading || state == State::failed) &&
           !pending();
}

int ChatController::lastQuestion() const {
    for (int i = static_cast<int>(m_messages.size()) - 1; i >= 0; --i) {
        if (m_messages[i].role == Role::user) return i;
    }
    return -1;
}

bool ChatController::canRegenerate() const {
    return canSend() && m_engine.state() != State::loading && m_messages.size() >= 2 &&
           m_messages.back().role == Role::assistant;
}

bool ChatController::canContinue() const {
    if (!canRegenerate() || m_messages.back().text.isEmpty()) return false;
    const Ending ending = m_messages.back().ending;
    return ending != Ending::answered && ending != Ending::contextFull && ending != Ending::none;
}

void ChatController::refuse(const char* what, const char* advice) {
    m_engine.refuse({ErrorKind::refused, what, {}, advice});
}

void ChatController::send() {
    sendNow(m_pane.composer()->text(), true);
}

void ChatController::sendQuestion(const QString& question) {
    sendNow(question, false);
}

void ChatController::sendNow(const QString& text, bool fromInput) {
    if (!canSend()) return;
    if (m_engine.state() == State::loading || m_tray.reading() || m_tray.counting()) {
        m_sendWhenReady = true;
        m_queued = fromInput ? QString() : text;
        Q_EMIT changed();
        return;
    }
    if (text.trimmed().isEmpty()) {
        refuse("There is nothing to send",
               m_tray.count() > 0 ? "Ask something about the document" : "Write a message first");
        return;
    }
    m_sent.start();
    m_firstText = false;
    m_asking = Asking::storing;
    m_fromInput = fromInput;
    m_question = {};
    m_question.role = Role::user;
    m_question.text = text.trimmed();
    m_question.documents = m_tray.documents();
    m_chatIsNew = m_chat == 0;
    if (m_chatIsNew) m_title = titleOf(m_question);
    // On disk first: what happens to the program later cannot take the words away.
    m_library.run(
        this,
        [chat = m_chat, title = m_title, options = m_options,
         question = m_question](ChatStore& store) -> Result<std::pair<qint64, qint64>> {
            Result<qint64> id = chat ? Result<qint64>(chat) : store.createChat(title, options);
            if (!id) return tl::unexpected(id.error());
            const auto message = store.append(*id, question);
            if (!message) return tl::unexpected(message.error());
            return std::pair{*id, *message};
        },
        [this](const Result<std::pair<qint64, qint64>>& stored) {
            // A disk that is full must not keep anybody from asking; the failure is shown.
            if (stored) {
                m_chat = stored->first;
                m_question.id = stored->second;
            }
            if (!m_closing) askStored();
        });
    Q_EMIT changed();
}

void ChatController::askStored() {
    m_asking = Asking::question;
    QVector<ChatMessage> messages = m_messages;
    if (m_editing) messages.resize(qMax(0, lastQuestion()));
    messages.push_back(m_question);
    m_engine.ask(makeRequest(messages, m_options, false));
}

// The question was stored and then refused: the chat is as it was.
void ChatController::forgetQuestion() {
    if (!m_fromInput && m_pane.composer()->text().trimmed().isEmpty()) {
        m_pane.composer()->setText(m_question.text);
    }
    if (m_question.id == 0) return;
    if (m_chatIsNew) {
        m_library.run([chat = m_chat](ChatStore& store) { return store.deleteChat(chat, true); });
        m_chat = 0;
    } else {
        m_library.run([id = m_question.id](ChatStore& store) { return store.remove({id}); });
    }
}

// The engine has taken the request: now the transcript changes.
void ChatController::admitted() {
    const Asking asking = m_asking;
    m_asking = Asking::nothing;
    if (asking == Asking::nothing || asking == Asking::storing) return;
    m_msToFirstText = -1;
    m_msToAnswer = -1;
    Transcript* transcript = m_pane.transcript();
    QVector<qint64> gone;
    int keep = static_cast<int>(m_messages.size());
    if (asking == Asking::again) keep -= 1;
    if (asking == Asking::question && m_editing) keep = qMax(0, lastQuestion());
    for (int i = keep; i < m_messages.size(); ++i) {
        if (m_messages[i].id) gone.push_back(m_messages[i].id);
    }
    if (!gone.isEmpty()) {
        m_library.run([gone](ChatStore& store) { return store.remove(gone); });
    }
    transcript->removeFrom(keep);
    m_messages.resize(keep);
    m_editing = false;

    if (asking == Asking::question) {
        m_messages.push_back(m_question);
        transcript->append(m_question);
        m_tray.clear();
        if (m_fromInput) m_pane.composer()->setText({});
        if (m_chat) {
            m_panel.model()->touch(m_chat, m_title, QDateTime::currentMSecsSinceEpoch());
            m_panel.setCurrent(m_chat);
        }
        Q_EMIT questionSent(m_question.text);
    }
    m_answering = true;
    m_unsaved.clear();
    if (asking == Asking::more) {
        m_messages.back().ending = Ending::none;
        transcript->last()->setMessage(m_messages.back());
    } else {
        ChatMessage answer;
        answer.role = Role::assistant;
        m_messages.push_back(answer);
        transcript->append(answer);
        if (m_chat) {
            m_library.run(
                this,
                [chat = m_chat, answer](ChatStore& store) { return store.append(chat, answer); },
                [this, chat = m_chat](const Result<qint64>& id) {
                    if (!id || chat != m_chat || m_messages.isEmpty()) return;
                    m_messages.back().id = *id;
                    if (!m_answering) flushAnswer();  // it ended before its row was there
                });
        }
    }
    m_pane.showTranscript(true);
    transcript->scrollToEnd();
    m_save.start();
}

void ChatController::onText(const QString& more) {
    if (!m_answering || m_messages.isEmpty()) return;
    ChatMessage& answer = m_messages.back();
    answer.text += more;
    m_unsaved += more;
    if (MessageView* view = m_pane.transcript()->last()) view->setText(answer.text, true);
    if (!m_firstText) {
        m_firstText = true;
        m_msToFirstText = static_cast<double>(m_sent.nsecsElapsed()) / 1e6;
    }
}

void ChatController::onFinished(const Report& report) {
    m_asking = Asking::nothing;
    if (!m_answering || m_messages.isEmpty()) return;
    m_msToAnswer = static_cast<double>(m_sent.nsecsElapsed()) / 1e6;
    ChatMessage& answer = m_messages.back();
    if (report.read_tokens > 0) answer.memoryLine = QString::fromStdString(report.memory_line());
    answer.live = true;
    if (report.kept_tokens > 0) answer.keptLine = QString::fromStdString(report.kept_line());
    endAnswer(endingOf(report.finish));
    Q_EMIT answered(report);
}

void ChatController::endAnswer(Ending ending) {
    m_answering = false;
    m_save.stop();
    ChatMessage& answer = m_messages.back();
    answer.ending = ending;
    if (MessageView* view = m_pane.transcript()->last()) {
        view->setProgress(0, 0, 0);
        view->setMessage(answer);
        view->setAccessibleDescription(answer.text);
        QAccessibleEvent event(view, QAccessible::Alert);  // "the answer is there"
        QAccessible::updateAccessibility(&event);
    }
    flushAnswer();
    Q_EMIT changed();
}

void ChatController::savePieces() {
    if (!m_answering || m_unsaved.isEmpty() || m_messages.back().id == 0) return;
    m_library.run([id = m_messages.back().id, piece = m_unsaved](ChatStore& store) {
        return store.appendPiece(id, piece);
    });
    m_unsaved.clear();
}

void ChatController::flushAnswer() {
    if (m_messages.isEmpty() || m_messages.back().id == 0) return;
    ChatMessage answer = m_messages.back();
    if (answer.ending == Ending::none) answer.ending = Ending::interrupted;
    m_library.run([answer](ChatStore& store) { return store.finish(answer); });
    m_unsaved.clear();
}

void ChatController::regenerate() {
    if (!canRegenerate()) return;
    m_asking = Asking::again;
    m_sent.start();
    m_firstText = false;
    m_engine.ask(makeRequest(m_messages.mid(0, m_messages.size() - 1), m_options, false));
    Q_EMIT changed();
}

void ChatController::continueAnswer() {
    if (!canContinue()) return;
    m_asking = Asking::more;
    m_sent.start();
    m_firstText = false;
    m_engine.ask(makeRequest(m_messages, m_options, true));
    Q_EMIT changed();
}

void ChatController::editLast() {
    const int at = lastQuestion();
    if (at < 0 || !canSend()) return;
    m_editing = true;
    m_tray.clear();
    for (const Document& document : m_messages[at].documents) m_tray.add(document);
    m_pane.composer()->setText(m_messages[at].text);
    m_pane.composer()->input()->setFocus();
    Q_EMIT editingBegan();
    Q_EMIT changed();
}

void ChatController::cancelEdit() {
    if (!m_editing) return;
    m_editing = false;
    m_tray.clear();
    m_pane.composer()->setText({});
    Q_EMIT changed();
}

void ChatController::newChat() {
    if (m_engine.busy() || pending()) return;
    m_chat = 0;
    m_editing = false;
    m_messages.clear();
    m_options = {{}, m_defaultTemperature};
    m_pane.options()->setOptions(m_options);
    m_pane.transcript()->setMessages({});
    m_pane.composer()->setText({});
    m_pane.composer()->input()->setFocus();
    m_tray.clear();
    m_panel.setCurrent(0);
    Q_EMIT changed();
}

void ChatController::openChat(qint64 chat) {
    if (chat == m_chat || m_engine.busy() || pending()) return;
    struct Loaded {
        QVector<ChatMessage> messages;
        ChatOptions options;
    };
    m_library.run(
        this,
        [chat](ChatStore& store) -> Result<Loaded> {
            auto messages = store.messages(chat);
            if (!messages) return tl::unexpected(messages.error());
            auto options = store.options(chat);
            if (!options) return tl::unexpected(options.error());
            return Loaded{*messages, *options};
        },
        [this, chat](const Result<Loaded>& loaded) {
            if (!loaded || m_engine.busy() || pending()) return;
            m_chat = chat;
            m_title = m_panel.model()->indexOf(chat).data().toString();
            m_editing = false;
            m_messages = loaded->messages;
            m_options = loaded->options;
            m_pane.options()->setOptions(m_options);
            m_pane.transcript()->setMessages(m_messages);
            m_panel.setCurrent(chat);
            Q_EMIT changed();
        });
}

void ChatController::trySendWhenReady() {
    if (!m_sendWhenReady) return;
    const State state = m_engine.state();
    if (state == State::no_model || state == State::lost) {
        m_sendWhenReady = false;
        return;
    }
    if (state != State::idle || m_tray.reading() || m_tray.counting()) return;
    m_sendWhenReady = false;
    if (m_queued.isNull())
        send();
    else
        sendQuestion(m_queued);
}

QString ChatController::titleOf(const ChatMessage& question) const {
    constexpr qsizetype kMost = 60;
    const QString line = question.text.simplified();
    return line.size() <= kMost ? line : line.left(kMost - 1) + QChar(0x2026);
}

}  // namespace granary::gui

// SPDX-License-Identifier: GPL-3.0-or-later
// Reads one file through granary-extract, a child process with hard limits, in a thread of its
// own: documents are not trusted, and the window does not wait for them.
#pragma once

#include <QObject>
#include <QThread>
#include <memory>

#include "granary/engine.h"
#include "gui/chat/chat_types.h"

namespace granary::gui {

class Extractor : public QObject {
    Q_OBJECT

  public:
    // `program`: granary-extract; empty: the one beside this executable.
    explicit Extractor(const QString& program = {}, QObject* parent = nullptr);
    ~Extractor() override;  // ends the child

    void start(const QString& path);

  Q_SIGNALS:
    void done(const granary::gui::Document& document);
    void refused(const granary::Error& error);

  private:
    QString m_program;
    StopSignal m_stop;
    std::unique_ptr<QThread> m_thread;  // the child lives as long as this thread does
};

// The document of text that came by paste.
Document pastedDocument(const QString& text, const QString& name);
QByteArray documentHash(const QByteArray& text);

}  // namespace granary::gui

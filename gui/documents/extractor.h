// SPDX-License-Identifier: GPL-3.0-or-later
// Reads one file through granary-extract, a child process with hard limits: documents are not
// trusted. Whatever happens to the child, the window gets a document or a refusal with a reason.
#pragma once

#include <QObject>
#include <QProcess>

#include "gpu/error.h"
#include "gui/chat/chat_types.h"

class QTimer;

namespace granary::gui {

class Extractor : public QObject {
    Q_OBJECT

  public:
    // `program`: granary-extract; empty: the one beside this executable.
    explicit Extractor(const QString& program = {}, QObject* parent = nullptr);
    ~Extractor() override;  // kills the child

    void start(const QString& path);

    static constexpr qint64 kMostOutput = 64LL * 1024 * 1024;
    static constexpr int kMostSeconds = 150;  // on the clock; 120 s of processor time

  Q_SIGNALS:
    void done(const granary::gui::Document& document);
    void refused(const granary::Error& error);

  private:
    void readOutput();
    void finish(int exitCode, QProcess::ExitStatus status);
    void refuse(const char* what, const QString& detail, const char* advice = "");

    QString m_program;
    QString m_path;
    QProcess m_process;
    QTimer* m_limit;
    QByteArray m_output;
    bool m_over = false;
};

// The document of text that came by paste.
Document pastedDocument(const QString& text, const QString& name);
QByteArray documentHash(const QByteArray& text);

}  // namespace granary::gui

// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/documents/extractor.h"

#include <QCoreApplication>
#include <QCryptographicHash>
#include <QFileInfo>
#include <QJsonDocument>
#include <QJsonObject>
#include <QTimer>
#ifdef Q_OS_UNIX
#include <sys/resource.h>
#endif

namespace granary::gui {

namespace {

#ifdef Q_OS_UNIX
// In the child, between fork and exec: only async-signal-safe calls.
void limitChild() {
    const auto limit = [](int resource, rlim_t value) {
        const rlimit both{value, value};
        setrlimit(static_cast<__rlimit_resource>(resource), &both);
    };
    limit(RLIMIT_AS, rlim_t{1} << 30);
    limit(RLIMIT_CPU, 120);
    limit(RLIMIT_FSIZE, 0);  // pipes are not files
    limit(RLIMIT_CORE, 0);
}
#endif

}  // namespace

QByteArray documentHash(const QByteArray& text) {
    return QCryptographicHash::hash(text, QCryptographicHash::Sha256);
}

Document pastedDocument(const QString& text, const QString& name) {
    Document document;
    document.name = name;
    document.text = std::make_shared<const QByteArray>(text.toUtf8());
    document.hash = documentHash(*document.text);
    return document;
}

Extractor::Extractor(const QString& program, QObject* parent)
    : QObject(parent),
      m_program(program.isEmpty() ? QCoreApplication::applicationDirPath() +
                                        QStringLiteral("/granary-extract")
                                  : program),
      m_limit(new QTimer(this)) {
    m_limit->setSingleShot(true);
    connect(m_limit, &QTimer::timeout, this, [this] {
        refuse("The document took too long to read",
               tr("%1: over %2 s").arg(m_path).arg(kMostSeconds));
    });
#ifdef Q_OS_UNIX
    m_process.setChildProcessModifier(limitChild);
#endif
    m_process.setStandardErrorFile(QProcess::nullDevice());
    connect(&m_process, &QProcess::readyReadStandardOutput, this, &Extractor::readOutput);
    connect(&m_process, &QProcess::finished, this, &Extractor::finish);
    connect(&m_process, &QProcess::errorOccurred, this, [this](QProcess::ProcessError error) {
        if (error == QProcess::FailedToStart) {
            refuse("The program that reads documents cannot be started", m_program,
                   "Install Granary again: granary-extract belongs beside granary");
        }
    });
}

Extractor::~Extractor() {
    m_over = true;
    m_process.disconnect(this);
    m_process.kill();
    m_process.waitForFinished(1000);
}

void Extractor::start(const QString& path) {
    m_path = path;
    const QFileInfo file(path);
    if (!file.exists()) {
        QTimer::singleShot(0, this, [this] {
            refuse("The document is not there any more", m_path, "Choose it again");
        });
        return;
    }
    if (file.isDir()) {
        QTimer::singleShot(0, this, [this] {
            refuse("A folder cannot be read as a document", m_path,
                   "Drop the files that you want to ask about");
        });
        return;
    }
    m_limit->start(kMostSeconds * 1000);
    m_process.start(m_program, {path}, QIODevice::ReadOnly);
}

void Extractor::readOutput() {
    m_output += m_process.readAllStandardOutput();
    if (m_output.size() > kMostOutput) {
        refuse("The document has more text than can be read",
               tr("%1: over %2 bytes").arg(m_path).arg(kMostOutput));
    }
}

void Extractor::finish(int exitCode, QProcess::ExitStatus status) {
    if (m_over) return;
    m_output += m_process.readAllStandardOutput();
    const qsizetype end = m_output.indexOf('\n');
    const QJsonObject header =
        QJsonDocument::fromJson(end < 0 ? m_output : m_output.left(end)).object();
    if (header.contains(QStringLiteral("error"))) {
        m_over = true;
        m_limit->stop();
        Q_EMIT refused({ErrorKind::refused,
                        header[QStringLiteral("what")].toString().toStdString(),
                        header[QStringLiteral("detail")].toString().toStdString(),
                        {}});
        return;
    }
    if (status != QProcess::NormalExit || exitCode != 0 || end < 0 || header.isEmpty()) {
        refuse("The document could not be read",
               status != QProcess::NormalExit
                   ? tr("%1: its reader was ended at a limit or crashed").arg(m_path)
                   : tr("%1: its reader ended with code %2").arg(m_path).arg(exitCode),
               "The file may be damaged");
        return;
    }
    m_over = true;
    m_limit->stop();
    QByteArray text = m_output.mid(end + 1);
    m_output.clear();
    text.replace('\f', '\n');  // an end of page is an end of line for the model
    Document document;
    document.name = QFileInfo(m_path).fileName();
    document.path = m_path;
    document.title = header[QStringLiteral("title")].toString();
    document.pages = qMax(1, header[QStringLiteral("pages")].toInt(1));
    document.hash = documentHash(text);
    document.text = std::make_shared<const QByteArray>(std::move(text));
    Q_EMIT done(document);
}

void Extractor::refuse(const char* what, const QString& detail, const char* advice) {
    if (m_over) return;
    m_over = true;
    m_limit->stop();
    m_process.kill();
    Q_EMIT refused({ErrorKind::refused, what, detail.toStdString(), advice});
}

}  // namespace granary::gui

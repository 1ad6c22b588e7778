// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/documents/extractor.h"

#include <QCryptographicHash>
#include <QFileInfo>

#include "engine/extract/client.h"

namespace granary::gui {

namespace {

Result<Document> extract(const QString& program, const QString& path, const StopSignal& stop) {
    const QFileInfo file(path);
    if (!file.exists()) {
        return fail(ErrorKind::io, "The document is not there any more", path.toStdString(),
                    "Choose it again");
    }
    if (file.isDir()) {
        return fail(ErrorKind::refused, "A folder cannot be read as a document", path.toStdString(),
                    "Drop the files that you want to ask about");
    }
    const auto extracted =
        extract_document(program.isEmpty() ? default_extractor_path() : program.toStdString(),
                         path.toStdString(), stop);
    if (!extracted) return tl::unexpected(extracted.error());
    Document document;
    document.name = file.fileName();
    document.path = path;
    document.title = QString::fromStdString(extracted->title);
    document.pages = static_cast<int>(extracted->pages);
    document.text =
        std::make_shared<const QByteArray>(QByteArray::fromStdString(extracted->prompt_text()));
    document.hash = documentHash(*document.text);
    if (document.text->trimmed().isEmpty()) {
        return fail(ErrorKind::refused, "The document holds no text", path.toStdString(),
                    "A scanned document needs its text recognised by another program first");
    }
    return document;
}

}  // namespace

QByteArray documentHash(const QByteArray& text) {
    return QCryptographicHash::hash(text, QCryptographicHash::Sha256);
}

Document pastedDocument(const QString& text, const QString& name) {
    Document document;
    document.name = name;
    document.text = std::make_shared<const QByteArray>(text.trimmed().toUtf8());
    document.hash = documentHash(*document.text);
    return document;
}

Extractor::Extractor(const QString& program, QObject* parent)
    : QObject(parent), m_program(program) {}

Extractor::~Extractor() {
    if (!m_thread) return;
    m_stop.request();
    m_thread->wait();
}

void Extractor::start(const QString& path) {
    m_thread.reset(QThread::create([this, path] {
        auto outcome = std::make_shared<Result<Document>>(extract(m_program, path, m_stop));
        QMetaObject::invokeMethod(this, [this, outcome] {
            if (*outcome)
                Q_EMIT done(**outcome);
            else
                Q_EMIT refused(outcome->error());
        });
    }));
    m_thread->start();
}

}  // namespace granary::gui

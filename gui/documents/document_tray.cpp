// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/documents/document_tray.h"

#include <QFileInfo>
#include <QLocale>
#include <algorithm>

#include "gui/documents/extractor.h"
#include "gui/theme/units.h"
#include "gui/widgets/chip.h"
#include "gui/widgets/flow_layout.h"
#include "gui/widgets/icons.h"

namespace granary::gui {

DocumentTray::DocumentTray(TokenCounter& counter, QWidget* parent)
    : QWidget(parent), m_counter(counter), m_layout(new FlowLayout(this)) {
    setObjectName(QStringLiteral("tray"));
    setAccessibleName(tr("Documents for the next question"));
    hide();
}

DocumentTray::~DocumentTray() = default;

DocumentTray::Entry* DocumentTray::find(quint64 key) {
    const auto at = std::find_if(m_entries.begin(), m_entries.end(),
                                 [key](const Entry& entry) { return entry.key == key; });
    return at == m_entries.end() ? nullptr : &*at;
}

DocumentTray::Entry& DocumentTray::append(const QString& name) {
    const quint64 key = m_nextKey++;
    auto* chip = new Chip(this);
    chip->setIcon(icon(Glyph::document));
    chip->setRemovable(true);
    chip->setOutlined(true);
    chip->setObjectName(QStringLiteral("document%1").arg(key));
    chip->setText(name);
    connect(chip, &Chip::removeClicked, this, [this, key] { removeKey(key); });
    m_layout->addWidget(chip);
    m_entries.push_back({key, {}, nullptr, nullptr, chip});
    m_entries.back().document.name = name;
    chip->show();
    setVisible(true);
    return m_entries.back();
}

void DocumentTray::show(Entry& entry) {
    const Document& document = entry.document;
    QString note;
    if (entry.extractor)
        note = tr("reading\u2026");
    else if (document.tokens >= 0)
        note = tr("%1 tokens").arg(QLocale().toString(document.tokens));
    else if (m_counter.ready())
        note = tr("counting\u2026");
    else
        note = bytesText(static_cast<quint64>(document.text ? document.text->size() : 0));
    entry.chip->setText(document.label());
    entry.chip->setNote(note);
    entry.chip->setAccessibleName(
        tr("Document %1, %2. Delete removes it.").arg(document.label(), note));
    QString tip = document.path.isEmpty() ? document.name : document.path;
    if (!document.title.isEmpty()) tip = document.title + QLatin1Char('\n') + tip;
    if (document.pages > 1) tip += tr("\n%n page(s)", nullptr, document.pages);
    entry.chip->setToolTip(tip);
}

void DocumentTray::count(Entry& entry) {
    m_counter.count(entry.document.text,
                    [this, key = entry.key](std::shared_ptr<const TokenIndex> index) {
                        Entry* counted = find(key);
                        if (!counted) return;
                        counted->document.tokens = index->tokens;
                        counted->index = std::move(index);
                        show(*counted);
                        Q_EMIT changed();
                        Q_EMIT this->counted(static_cast<int>(counted - m_entries.data()));
                    });
}

void DocumentTray::addFile(const QString& path) {
    if (count() >= kMost) {
        Q_EMIT refused({ErrorKind::refused, "Too many documents for one question",
                        std::to_string(kMost) + " at most", "Remove some first"});
        return;
    }
    Entry& entry = append(QFileInfo(path).fileName());
    entry.document.path = path;
    entry.extractor = std::make_unique<Extractor>();
    const quint64 key = entry.key;
    // Queued: the extractor is deleted in answer to its own signal.
    connect(
        entry.extractor.get(), &Extractor::done, this,
        [this, key](const Document& document) {
            Entry* read = find(key);
            if (!read) return;
            read->extractor.reset();
            read->document = document;
            count(*read);
            show(*read);
            Q_EMIT changed();
        },
        Qt::QueuedConnection);
    connect(
        entry.extractor.get(), &Extractor::refused, this,
        [this, key](const Error& error) {
            removeKey(key);
            Q_EMIT refused(error);
        },
        Qt::QueuedConnection);
    show(entry);
    entry.extractor->start(path);
    Q_EMIT changed();
}

void DocumentTray::add(const Document& document) {
    Entry& entry = append(document.name);
    entry.document = document;
    count(entry);
    show(entry);
    Q_EMIT changed();
}

void DocumentTray::replace(int index, const Document& document) {
    if (index < 0 || index >= count()) return;
    Entry& entry = m_entries[static_cast<size_t>(index)];
    entry.document = document;
    entry.index.reset();
    count(entry);
    show(entry);
    Q_EMIT changed();
}

void DocumentTray::removeKey(quint64 key) {
    const Entry* entry = find(key);
    if (entry) remove(static_cast<int>(entry - m_entries.data()));
}

void DocumentTray::remove(int index) {
    if (index < 0 || index >= count()) return;
    Entry& entry = m_entries[static_cast<size_t>(index)];
    m_layout->removeWidget(entry.chip);
    entry.chip->hide();
    entry.chip->deleteLater();
    m_entries.erase(m_entries.begin() + index);
    setVisible(!m_entries.empty());
    Q_EMIT changed();
}

void DocumentTray::clear() {
    while (count() > 0) remove(count() - 1);
}

void DocumentTray::recount() {
    for (Entry& entry : m_entries) {
        entry.document.tokens = -1;
        entry.index.reset();
        if (!entry.extractor) count(entry);
        show(entry);
    }
}

QVector<Document> DocumentTray::documents() const {
    QVector<Document> documents;
    for (const Entry& entry : m_entries) {
        if (entry.document.text) documents.push_back(entry.document);
    }
    return documents;
}

std::shared_ptr<const TokenIndex> DocumentTray::index(int at) const {
    return at >= 0 && at < count() ? m_entries[static_cast<size_t>(at)].index : nullptr;
}

bool DocumentTray::reading() const {
    return std::any_of(m_entries.begin(), m_entries.end(),
                       [](const Entry& entry) { return entry.extractor != nullptr; });
}

bool DocumentTray::counting() const {
    return m_counter.ready() &&
           std::any_of(m_entries.begin(), m_entries.end(),
                       [](const Entry& entry) { return entry.document.tokens < 0; });
}

qint64 DocumentTray::tokens() const {
    qint64 sum = 0;
    for (const Entry& entry : m_entries) sum += qMax<qint64>(0, entry.document.tokens);
    return sum;
}

}  // namespace granary::gui

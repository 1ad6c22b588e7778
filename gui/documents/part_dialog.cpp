// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/documents/part_dialog.h"

#include <QCoreApplication>
#include <QDialogButtonBox>
#include <QFormLayout>
#include <QLabel>
#include <QLocale>
#include <QPlainTextEdit>
#include <QPushButton>
#include <QSlider>
#include <QSpinBox>
#include <algorithm>

#include "gui/documents/extractor.h"

namespace granary::gui {

Document partOf(const Document& document, const TokenIndex& index, qint64 from, qint64 length) {
    const QByteArray& text = *document.text;
    qsizetype begin = index.offset(from, text.size());
    qsizetype end = index.offset(from + length, text.size());
    // Whole lines, and never more than was asked for; a line longer than the part stays cut, but
    // not inside a character.
    const auto continues = [&](qsizetype at) {
        return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80;
    };
    while (begin > 0 && continues(begin)) --begin;
    while (end > begin && continues(end)) --end;
    if (begin > 0) {
        const qsizetype line = text.indexOf('\n', begin - 1);
        if (line >= 0 && line + 1 < end) begin = line + 1;
    }
    if (end < text.size()) {
        const qsizetype line = text.lastIndexOf('\n', end - 1);
        if (line > begin) end = line;
    }
    Document part = document;
    part.text = std::make_shared<const QByteArray>(text.mid(begin, end - begin).trimmed());
    part.hash = documentHash(*part.text);
    part.tokens = -1;
    const auto percent = [&](qsizetype at) {
        return QLocale().toString(text.isEmpty() ? 0 : qRound(100.0 * at / text.size()));
    };
    part.part = QCoreApplication::translate("granary::gui::PartDialog", "%1 to %2 %")
                    .arg(percent(begin), percent(end));
    return part;
}

PartDialog::PartDialog(Document document, std::shared_ptr<const TokenIndex> index, qint64 most,
                       QWidget* parent)
    : QDialog(parent), m_document(std::move(document)), m_index(std::move(index)) {
    setObjectName(QStringLiteral("partDialog"));
    setWindowTitle(tr("Choose a part of %1").arg(m_document.name));
    setAccessibleName(windowTitle());
    resize(640, 480);
    const auto tokens = static_cast<int>(std::min<qint64>(m_index->tokens, INT_MAX));
    const int room = std::clamp(static_cast<int>(std::min<qint64>(most, INT_MAX)), 1, tokens);
    m_from = new QSlider(Qt::Horizontal);
    m_from->setObjectName(QStringLiteral("partFrom"));
    m_from->setAccessibleName(tr("Begins at token"));
    m_from->setRange(0, std::max(0, tokens - 1));
    m_from->setPageStep(room);
    m_length = new QSpinBox;
    m_length->setObjectName(QStringLiteral("partLength"));
    m_length->setAccessibleName(tr("Tokens to read"));
    m_length->setRange(1, room);
    m_length->setGroupSeparatorShown(true);
    m_length->setSingleStep(256);
    m_length->setValue(room);
    m_range = new QLabel;
    m_preview = new QPlainTextEdit;
    m_preview->setReadOnly(true);
    m_preview->setTabChangesFocus(true);
    m_preview->setAccessibleName(tr("First and last lines of the part"));
    auto* buttons = new QDialogButtonBox(QDialogButtonBox::Cancel);
    QPushButton* use = buttons->addButton(tr("Use this part"), QDialogButtonBox::AcceptRole);
    use->setObjectName(QStringLiteral("usePart"));
    use->setProperty("accent", true);
    for (QAbstractButton* button : buttons->buttons()) button->setAccessibleName(button->text());

    auto* form = new QFormLayout;
    form->addRow(tr("&Begin"), m_from);
    form->addRow(tr("&Tokens"), m_length);
    auto* layout = new QVBoxLayout(this);
    layout->setContentsMargins(16, 16, 16, 16);
    layout->setSpacing(12);
    layout->addLayout(form);
    layout->addWidget(m_range);
    layout->addWidget(m_preview, 1);
    layout->addWidget(buttons);
    connect(buttons, &QDialogButtonBox::accepted, this, &QDialog::accept);
    connect(buttons, &QDialogButtonBox::rejected, this, &QDialog::reject);
    connect(m_from, &QSlider::valueChanged, this, &PartDialog::refresh);
    connect(m_length, &QSpinBox::valueChanged, this, &PartDialog::refresh);
    refresh();
}

Document PartDialog::part() const {
    return partOf(m_document, *m_index, m_from->value(), m_length->value());
}

void PartDialog::refresh() {
    const Document chosen = part();
    const QLocale locale;
    m_range->setText(tr("%1 of %2 tokens, %3 of the text")
                         .arg(locale.toString(m_length->value()), locale.toString(m_index->tokens),
                              chosen.part));
    constexpr qsizetype kShown = 1200;
    const QString text = QString::fromUtf8(*chosen.text);
    m_preview->setPlainText(text.size() <= 2 * kShown
                                ? text
                                : text.left(kShown) + QStringLiteral("\n\n\u2026\n\n") +
                                      text.right(kShown));
}

}  // namespace granary::gui

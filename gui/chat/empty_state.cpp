// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/chat/empty_state.h"

#include <QAction>
#include <QFileInfo>
#include <QHBoxLayout>
#include <QLabel>
#include <QPushButton>

#include "gui/engine/engine_types.h"
#include "gui/theme/units.h"
#include "gui/widgets/chip.h"
#include "gui/widgets/panel.h"

namespace granary::gui {

EmptyState::EmptyState(QWidget* parent) : QWidget(parent) {
    m_title = new QLabel;
    QFont large = m_title->font();
    large.setPointSizeF(large.pointSizeF() * 1.7);
    large.setWeight(QFont::DemiBold);
    m_title->setFont(large);
    m_title->setAlignment(Qt::AlignHCenter);
    m_title->setWordWrap(true);
    m_text = new QuietLabel;
    m_text->setAlignment(Qt::AlignHCenter);
    m_text->setWordWrap(true);
    m_progress = new ThinProgress;
    m_progress->setAccessibleName(tr("Loading progress"));
    m_extra = new QWidget;
    m_extraLayout = new QVBoxLayout(m_extra);
    m_extraLayout->setContentsMargins(0, 0, 0, 0);
    m_extraLayout->setSpacing(8);

    auto* inner = new QWidget;
    auto* layout = new QVBoxLayout(inner);
    layout->setContentsMargins(24, 24, 24, 24);
    layout->setSpacing(12);
    layout->addStretch(2);
    layout->addWidget(m_title);
    layout->addWidget(m_text);
    layout->addSpacing(8);
    layout->addWidget(m_progress);
    layout->addWidget(m_extra);
    layout->addStretch(3);
    auto* outer = new QVBoxLayout(this);
    outer->setContentsMargins(0, 0, 0, 0);
    outer->addWidget(centredColumn(inner, 560));
}

void EmptyState::clear() {
    while (QLayoutItem* item = m_extraLayout->takeAt(0)) {
        if (QLayout* row = item->layout()) {
            while (QLayoutItem* child = row->takeAt(0)) {
                if (child->widget()) {
                    child->widget()->hide();
                    child->widget()->deleteLater();
                }
                delete child;
            }
        }
        if (item->widget()) {
            item->widget()->hide();
            item->widget()->deleteLater();
        }
        delete item;
    }
    m_progress->hide();
}

void EmptyState::showNoModel(QAction* first, QAction* second, const QStringList& recent) {
    const QWidget* focus = window()->focusWidget();
    const bool takeFocus = !focus || !focus->isEnabled() || isAncestorOf(focus);
    clear();
    m_title->setText(tr("Open a model to begin"));
    m_text->setText(
        tr("Granary runs Mixture-of-Experts models from a GGUF file on this computer. "
           "The starter model is small, comes with the program and needs no "
           "download."));
    auto* row = new QHBoxLayout;
    row->setSpacing(8);
    row->addStretch(1);
    auto* accent = new AccentButton;
    accent->setDefaultAction(first);
    accent->setToolButtonStyle(Qt::ToolButtonTextOnly);
    accent->setAccessibleName(first->text());
    row->addWidget(accent);
    auto* other = new QPushButton(second->text());
    other->setObjectName(QStringLiteral("openModelButton"));
    other->setAccessibleName(second->text());
    connect(other, &QPushButton::clicked, second, &QAction::trigger);
    row->addWidget(other);
    row->addStretch(1);
    m_extraLayout->addLayout(row);
    if (takeFocus) accent->setFocus(Qt::OtherFocusReason);
    if (!recent.isEmpty()) {
        m_extraLayout->addSpacing(16);
        auto* label = new QuietLabel(tr("Opened last"));
        m_extraLayout->addWidget(label, 0, Qt::AlignHCenter);
        for (const QString& path : recent) {
            auto* chip = new Chip;
            chip->setIcon(icon(Glyph::chip));
            chip->setText(QFileInfo(path).fileName());
            chip->setToolTip(path);
            chip->setAccessibleName(tr("Open %1").arg(path));
            connect(chip, &Chip::clicked, this, [this, path] { Q_EMIT modelChosen(path); });
            m_extraLayout->addWidget(chip, 0, Qt::AlignHCenter);
        }
    }
    m_extraLayout->addSpacing(8);
    auto* drop = new QuietLabel(tr("or drop a GGUF file anywhere in this window"));
    m_extraLayout->addWidget(drop, 0, Qt::AlignHCenter);
}

void EmptyState::showLoading(const QString& name, QAction* cancel) {
    clear();
    m_title->setText(tr("Loading %1").arg(name));
    m_text->setText(tr("You can write already: Enter sends as soon as the model is ready."));
    m_progress->setRange(0, 0);
    m_progress->show();
    auto* button = new QPushButton(tr("Cancel"));
    button->setObjectName(QStringLiteral("cancelLoading"));
    button->setAccessibleName(tr("Cancel loading"));
    connect(button, &QPushButton::clicked, cancel, &QAction::trigger);
    m_extraLayout->addWidget(button, 0, Qt::AlignHCenter);
}

void EmptyState::setLoadProgress(quint64 done, quint64 total, double seconds) {
    if (total == 0 || m_progress->isHidden()) return;
    m_progress->setRange(0, 1000);
    m_progress->setValue(static_cast<int>(done * 1000 / total));
    m_text->setText(
        tr("%1 of %2, %3").arg(bytesText(done), bytesText(total), durationText(seconds)));
}

void EmptyState::showReady(const QString& title, const QString& text) {
    clear();
    m_title->setText(title);
    m_text->setText(text);
}

}  // namespace granary::gui

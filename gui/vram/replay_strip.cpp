// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/vram/replay_strip.h"

#include <QAction>
#include <QHBoxLayout>
#include <QLabel>
#include <QLocale>
#include <QProgressBar>
#include <QPushButton>
#include <QVBoxLayout>

#include "gui/theme/metrics.h"

namespace granary::gui {

ReplayStrip::ReplayStrip(QAction* stop, QWidget* parent)
    : QFrame(parent), m_text(new QLabel(this)), m_progress(new QProgressBar(this)) {
    setObjectName(QStringLiteral("replayStrip"));
    setProperty("bar", QStringLiteral("warning"));
    m_text->setText(tr("Replaying, 1/10 speed"));
    m_text->setFont(metrics::strong(metrics::small(font())));
    m_progress->setAccessibleName(tr("Progress of the replay"));
    m_progress->setTextVisible(false);
    m_progress->setFixedHeight(4);
    m_progress->setRange(0, 1000);
    auto* button = new QPushButton(tr("Stop"), this);
    button->setObjectName(QStringLiteral("stopReplayButton"));
    button->setAccessibleName(tr("Stop the replay"));
    button->setFont(metrics::small(font()));
    connect(button, &QPushButton::clicked, stop, &QAction::trigger);

    auto* text = new QVBoxLayout;
    text->setSpacing(2);
    text->addWidget(m_text);
    text->addWidget(m_progress);
    auto* row = new QHBoxLayout(this);
    row->setContentsMargins(metrics::kGrid, 2, 2, 2);
    row->setSpacing(metrics::kGrid);
    row->addLayout(text, 1);
    row->addWidget(button);
}

void ReplayStrip::showPosition(double position, const MapSpan& span) {
    const double length = span.to - span.from, at = position - span.from;
    m_progress->setValue(length > 0 ? qRound(1000 * at / length) : 0);
    const QLocale locale;
    setToolTip(tr("%1 of %2 recorded seconds; what happens now is recorded meanwhile")
                   .arg(locale.toString(at, 'f', 2), locale.toString(length, 'f', 2)));
}

}  // namespace granary::gui

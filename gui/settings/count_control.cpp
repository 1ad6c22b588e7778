// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/settings/count_control.h"

#include <QGridLayout>
#include <QLabel>

#include "gui/settings/count_slider.h"
#include "gui/settings/count_spin.h"
#include "gui/theme/metrics.h"
#include "gui/theme/theme.h"

namespace granary::gui {

CountControl::CountControl(const QString& identifier, const QString& label, const QString& help,
                           const CountScale& scale, QWidget* parent)
    : QWidget(parent),
      m_label(new QLabel(label, this)),
      m_note(new QLabel(this)),
      m_slider(new CountSlider(scale, this)),
      m_number(new CountSpin(scale, this)) {
    setObjectName(identifier);
    m_slider->setObjectName(identifier + QStringLiteral("-slider"));
    m_number->setObjectName(identifier + QStringLiteral("-number"));
    const QString tip = help + QStringLiteral("\n") + tr("Setting: %1").arg(identifier);
    setToolTip(tip);
    setAccessibleName(label);
    m_slider->setAccessibleName(label);
    m_slider->setAccessibleDescription(help);
    m_number->setAccessibleName(tr("%1, any number").arg(label));
    m_number->setAccessibleDescription(help);
    m_label->setBuddy(m_number);
    m_note->setFont(metrics::small(font()));
    m_note->setAlignment(Qt::AlignRight | Qt::AlignVCenter);
    m_note->setProperty("tone", QStringLiteral("muted"));

    auto* grid = new QGridLayout(this);
    grid->setContentsMargins(0, 0, 0, 0);
    grid->setHorizontalSpacing(metrics::kGrid);
    grid->setVerticalSpacing(0);
    grid->addWidget(m_label, 0, 0);
    grid->addWidget(m_note, 0, 1);
    grid->addWidget(m_slider, 1, 0, 1, 2);
    grid->addWidget(m_number, 0, 2, 2, 1, Qt::AlignVCenter);
    grid->setColumnStretch(1, 1);

    connect(m_slider, &CountSlider::countEdited, this, [this](AutoCount value) {
        m_number->setCount(value);
        Q_EMIT edited(value);
    });
    connect(m_number, &CountSpin::countEdited, this, [this](AutoCount value) {
        m_slider->setCount(value);
        Q_EMIT edited(value);
    });
}

void CountControl::setScale(const CountScale& scale) {
    m_slider->setScale(scale);
    m_number->setScale(scale);
}

void CountControl::setMark(std::optional<uint32_t> value) {
    m_slider->setMark(value);
}

AutoCount CountControl::count() const {
    return m_number->count();
}

void CountControl::setCount(const AutoCount& value) {
    m_slider->setCount(value);
    if (m_number->count() != value) m_number->setCount(value);
}

void CountControl::setAutoMeaning(uint32_t number) {
    m_number->setAutoMeaning(number);
}

void CountControl::setNote(const QString& text, bool warning) {
    m_note->setText(text);
    Theme::setProperty(m_note, "tone",
                       warning ? QStringLiteral("warning") : QStringLiteral("muted"));
}

}  // namespace granary::gui

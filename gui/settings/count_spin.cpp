// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/settings/count_spin.h"

#include <QLineEdit>
#include <QLocale>
#include <QWheelEvent>
#include <algorithm>

namespace granary::gui {

CountSpin::CountSpin(const CountScale& scale, QWidget* parent)
    : QAbstractSpinBox(parent), m_scale(scale) {
    setFocusPolicy(Qt::StrongFocus);
    setAlignment(Qt::AlignRight);
    setSizePolicy(QSizePolicy::Fixed, QSizePolicy::Fixed);
    connect(this, &QAbstractSpinBox::editingFinished, this, &CountSpin::commit);
    setCount({m_scale.hasAuto() ? AutoCount::Kind::automatic : AutoCount::Kind::number,
              m_scale.hasAuto() ? 0 : m_scale.least()});
}

void CountSpin::setScale(const CountScale& scale) {
    m_scale = scale;
}

QString CountSpin::shownText() const {
    if (m_count.kind == AutoCount::Kind::automatic && m_meaning > 0)
        return tr("auto: %1").arg(QLocale().toString(m_meaning));
    return CountScale::text(m_count);
}

std::optional<AutoCount> CountSpin::typed(const QString& text) const {
    if (m_scale.hasAuto() && m_count.kind == AutoCount::Kind::automatic && text == shownText())
        return m_count;
    return m_scale.parse(text);
}

void CountSpin::setCount(const AutoCount& value) {
    m_count = value;
    lineEdit()->setText(shownText());
}

void CountSpin::setAutoMeaning(uint32_t number) {
    if (number == m_meaning) return;
    m_meaning = number;
    if (!hasFocus()) lineEdit()->setText(shownText());
}

void CountSpin::commit() {
    std::optional<AutoCount> value = typed(lineEdit()->text());
    // A number out of the range becomes the nearest in it; anything else is taken back.
    if (value && value->kind == AutoCount::Kind::number)
        value->number = std::clamp(value->number, m_scale.least(), m_scale.most());
    const bool edited = value && *value != m_count;
    if (edited) m_count = *value;
    lineEdit()->setText(shownText());
    if (edited) Q_EMIT countEdited(m_count);
}

void CountSpin::stepBy(int steps) {
    const AutoCount value = m_scale.neighbour(m_count, steps);
    if (value == m_count) return;
    setCount(value);
    selectAll();
    Q_EMIT countEdited(value);
}

QAbstractSpinBox::StepEnabled CountSpin::stepEnabled() const {
    const int position = m_scale.position(m_count);
    StepEnabled enabled = StepNone;
    if (position > 0) enabled |= StepDownEnabled;
    if (position < m_scale.maximum()) enabled |= StepUpEnabled;
    return enabled;
}

QValidator::State CountSpin::validate(QString& input, int&) const {
    const std::optional<AutoCount> value = typed(input);
    if (value && m_scale.contains(*value)) return QValidator::Acceptable;
    return QValidator::Intermediate;
}

QSize CountSpin::sizeHint() const {
    // The same width whatever the scale, so that spin boxes below each other line up.
    QSize size = QAbstractSpinBox::sizeHint();
    size.setWidth(
        std::max(fontMetrics().horizontalAdvance(tr("auto: %1").arg(QLocale().toString(16384))),
                 fontMetrics().horizontalAdvance(QLocale().toString(1048576))) +
        40);
    return size;
}

void CountSpin::wheelEvent(QWheelEvent* event) {
    event->ignore();
}

}  // namespace granary::gui

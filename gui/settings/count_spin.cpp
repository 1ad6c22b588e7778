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
    const std::optional<AutoCount> value = typed(lineEdit()->text());
    if (!value || !m_scale.contains(*value)) {
        lineEdit()->setText(shownText());
        return;
    }
    const bool edited = *value != m_count;
    m_count = *value;
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

void CountSpin::fixup(QString& input) const {
    // A number out of the range becomes the nearest in it; anything else is taken back.
    const std::optional<AutoCount> value = typed(input);
    if (value && value->kind == AutoCount::Kind::number)
        input = CountScale::text(
            {AutoCount::Kind::number, std::clamp(value->number, m_scale.least(), m_scale.most())});
    else
        input = shownText();
}

QSize CountSpin::sizeHint() const {
    const QString longest = m_scale.hasAuto() ? tr("auto: %1").arg(QLocale().toString(16384))
                                              : QLocale().toString(1048576);
    QSize size = QAbstractSpinBox::sizeHint();
    size.setWidth(fontMetrics().horizontalAdvance(longest) + 40);
    return size;
}

void CountSpin::wheelEvent(QWheelEvent* event) {
    event->ignore();
}

}  // namespace granary::gui

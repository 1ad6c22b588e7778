// SPDX-License-Identifier: GPL-3.0-or-later
// Any number of a CountScale as text, with its arrows going from stop to stop.
#pragma once

#include <QAbstractSpinBox>

#include "gui/settings/count_scale.h"

namespace granary::gui {

class CountSpin : public QAbstractSpinBox {
    Q_OBJECT
  public:
    explicit CountSpin(const CountScale& scale, QWidget* parent = nullptr);

    void setScale(const CountScale& scale);
    AutoCount count() const { return m_count; }
    void setCount(const AutoCount& value);  // no signal
    // What "auto" means now; shown behind the word. 0: nothing.
    void setAutoMeaning(uint32_t number);

    void stepBy(int steps) override;
    QValidator::State validate(QString& input, int& position) const override;
    QSize sizeHint() const override;
    QSize minimumSizeHint() const override { return sizeHint(); }

  Q_SIGNALS:
    void countEdited(granary::AutoCount value);

  protected:
    StepEnabled stepEnabled() const override;
    void wheelEvent(QWheelEvent* event) override;

  private:
    void commit();
    QString shownText() const;
    std::optional<AutoCount> typed(const QString& text) const;

    CountScale m_scale;
    AutoCount m_count;
    uint32_t m_meaning = 0;
};

}  // namespace granary::gui

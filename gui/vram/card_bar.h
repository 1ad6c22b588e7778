// SPDX-License-Identifier: GPL-3.0-or-later
// The budget as one stacked bar: who holds how much now, the limit, and under it the ghost of the
// layout that the settings being edited would make.
#pragma once

#include <QWidget>
#include <array>
#include <optional>

#include "granary/planner.h"
#include "granary/telemetry.h"

namespace granary::gui {

class CardBar : public QWidget {
    Q_OBJECT
  public:
    explicit CardBar(QWidget* parent = nullptr);

    // Granules by class and the size of one; all zero: no model is loaded.
    void setAmounts(const std::array<uint32_t, kOwners>& granules, uint64_t granuleBytes);
    // What stands there while no model is loaded.
    void setEmptyText(const QString& text);
    // The plan of settings that differ from the running ones; none: no ghost.
    void setGhost(const std::optional<Plan>& plan);

    QSize sizeHint() const override { return {360, 32}; }
    QSize minimumSizeHint() const override { return {120, 28}; }

    // The class whose segment lies at `position` of the bar, if any.
    std::optional<Owner> ownerAt(QPointF position) const;

  protected:
    bool event(QEvent* event) override;
    void paintEvent(QPaintEvent* event) override;

  private:
    using Bytes = std::array<uint64_t, kOwners>;
    QRectF barRect() const;
    double scaleBytes() const;
    void describe();

    Bytes m_bytes{};
    QString m_empty;
    std::optional<Plan> m_ghost;
};

}  // namespace granary::gui

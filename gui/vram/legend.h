// SPDX-License-Identifier: GPL-3.0-or-later
// The owner classes with their granules and bytes; a click shows or hides a class on the map.
#pragma once

#include <QAbstractButton>
#include <QWidget>
#include <array>

#include "granary/telemetry.h"

class QGridLayout;

namespace granary::gui {

class LegendItem : public QAbstractButton {
    Q_OBJECT
  public:
    explicit LegendItem(Owner owner, QWidget* parent = nullptr);
    Owner owner() const { return m_owner; }
    void setAmount(uint32_t granules, uint64_t bytes);
    QSize sizeHint() const override;
    QSize minimumSizeHint() const override { return {80, sizeHint().height()}; }

  protected:
    void paintEvent(QPaintEvent* event) override;
    void enterEvent(QEnterEvent* event) override;
    void leaveEvent(QEvent* event) override;

  private:
    void describe();

    Owner m_owner;
    uint32_t m_granules = 0;
    uint64_t m_bytes = 0;
};

class Legend : public QWidget {
    Q_OBJECT
  public:
    explicit Legend(QWidget* parent = nullptr);
    void setAmounts(const std::array<uint32_t, kOwners>& granules, uint64_t granuleBytes);
    LegendItem* item(Owner owner) const { return m_items[static_cast<size_t>(owner)]; }

  Q_SIGNALS:
    void shownChanged(granary::Owner owner, bool shown);

  protected:
    void resizeEvent(QResizeEvent* event) override;

  private:
    void arrange(int columns);
    void fit();  // as many columns as the widest entry leaves room for

    std::array<LegendItem*, kOwners> m_items{};
    QGridLayout* m_grid;
    int m_columns = 0;
};

}  // namespace granary::gui

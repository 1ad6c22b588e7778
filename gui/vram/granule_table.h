// SPDX-License-Identifier: GPL-3.0-or-later
// The memory map as a table, for whoever cannot or does not want to look at a picture: the same
// model, one row a granule, filtered by class.
#pragma once

#include <QAbstractTableModel>
#include <QSortFilterProxyModel>
#include <QWidget>

#include "gui/vram/map_model.h"

class QComboBox;
class QTableView;
class QTimer;

namespace granary::gui {

class GranuleTableModel : public QAbstractTableModel {
    Q_OBJECT
  public:
    enum Column { Number, Class, What, Where, Columns };
    static constexpr int kOwnerRole = Qt::UserRole;

    explicit GranuleTableModel(const MapModel& map, QObject* parent = nullptr);
    // Looks at the map again; the map does not know of its table.
    void refresh();

    int rowCount(const QModelIndex& parent = {}) const override;
    int columnCount(const QModelIndex& parent = {}) const override;
    QVariant data(const QModelIndex& index, int role) const override;
    QVariant headerData(int section, Qt::Orientation orientation, int role) const override;

  private:
    const MapModel& m_map;
    int m_rows = 0;
    uint64_t m_sequence = 0;
};

// Rows of one class, or all.
class GranuleFilter : public QSortFilterProxyModel {
    Q_OBJECT
  public:
    using QSortFilterProxyModel::QSortFilterProxyModel;
    void setOwner(int owner);  // -1: all

  protected:
    bool filterAcceptsRow(int row, const QModelIndex& parent) const override;

  private:
    int m_owner = -1;
};

class GranuleTable : public QWidget {
    Q_OBJECT
  public:
    explicit GranuleTable(const MapModel& map, QWidget* parent = nullptr);
    QTableView* view() const { return m_view; }
    QComboBox* classFilter() const { return m_filterBox; }

  Q_SIGNALS:
    void granuleChosen(int granule);

  protected:
    void showEvent(QShowEvent* event) override;
    void hideEvent(QHideEvent* event) override;

  private:
    GranuleTableModel* m_model;
    GranuleFilter* m_filter;
    QTableView* m_view;
    QComboBox* m_filterBox;
    QTimer* m_timer;
};

}  // namespace granary::gui

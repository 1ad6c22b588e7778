// SPDX-License-Identifier: GPL-3.0-or-later
// The settings that are not sliders, opened by the device chip. They belong to the same draft, so
// one Apply and one Undo serve both places.
#pragma once

#include <QDialog>
#include <vector>

#include "gpu/device.h"
#include "gui/settings/settings_draft.h"

class QAction;
class QComboBox;
class QFormLayout;
class QLabel;
class QLineEdit;
class QRadioButton;

namespace granary::gui {

class SettingsSheet : public QDialog {
    Q_OBJECT
  public:
    // `apply` and `undo` are the window's own actions.
    SettingsSheet(SettingsDraft& draft, QAction* apply, QAction* undo, QWidget* parent = nullptr);

    // "AMD EPYC, 2 threads, AVX-512", and each device that the machine has and that is not used.
    void setDevices(const QString& used, const std::vector<gpu::UnusedDevice>& unused);

  private:
    struct Field {
        QString name;
        QLineEdit* edit;
        QLabel* error;
    };
    void addField(QFormLayout* form, const QString& name, const QString& label,
                  const QString& help);
    void showDraft();

    SettingsDraft& m_draft;
    QRadioButton* m_card;
    QRadioButton* m_cpu;
    QComboBox* m_device;
    QComboBox* m_kv;
    QLabel* m_unused;
    QLabel* m_line;
    std::vector<Field> m_fields;
    QString m_lastBudget;
};

}  // namespace granary::gui

// SPDX-License-Identifier: GPL-3.0-or-later
// All settings that are set once rather than moved: what computes, its memory, how answers are
// made. Edits the same draft as the sliders.
#pragma once

#include <QDialog>
#include <QString>
#include <optional>
#include <utility>
#include <vector>

#include "gpu/device.h"
#include "gpu/found_devices.h"
#include "gui/settings/settings_draft.h"

class QAction;
class QCheckBox;
class QComboBox;
class QFormLayout;
class QLabel;
class QLineEdit;
class QRadioButton;
class QVBoxLayout;

namespace granary::gui {

// "NVIDIA H200, 140 GiB"
QString deviceLabel(const gpu::FoundDevice& device);

class FullHeightScroll;

class SettingsSheet : public QDialog {
    Q_OBJECT
  public:
    // `apply` and `undo` are the window's own actions.
    SettingsSheet(SettingsDraft& draft, QAction* apply, QAction* undo, QWidget* parent = nullptr);

    // The one that computes, where a model is open, and all that the machine has.
    void setDevices(const std::optional<gpu::DeviceInfo>& used,
                    const std::vector<gpu::FoundDevice>& found);

  protected:
    void showEvent(QShowEvent* event) override;

  private:
    struct Field {
        QString name;
        QLineEdit* edit;
        QLabel* error;
    };
    using Choices = std::vector<std::pair<const char*, QString>>;  // value, what people read
    QFormLayout* addSection(const QString& title);
    void addField(QFormLayout* form, const QString& name, const QString& label,
                  const QString& help);
    QComboBox* addChoice(QFormLayout* form, const QString& name, const QString& label,
                         const QString& help, const Choices& choices);
    void chooseDevice(const QString& id);
    void showDraft();
    void showDevices();
    QString automaticText() const;

    SettingsDraft& m_draft;
    QVBoxLayout* m_column;  // of all but the line and the buttons
    std::optional<gpu::DeviceInfo> m_used;
    std::vector<gpu::FoundDevice> m_found;
    FullHeightScroll* m_scroll;
    QComboBox* m_device;
    QRadioButton* m_cpu;
    QRadioButton* m_card;
    QLabel* m_unused;
    QComboBox* m_kv;
    QComboBox* m_rope;
    QCheckBox* m_deterministic;
    QLabel* m_line;
    std::vector<Field> m_fields;
    std::vector<QLabel*> m_captions;
    QString m_lastBudget;
};

}  // namespace granary::gui

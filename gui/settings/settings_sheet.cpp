// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/settings/settings_sheet.h"

#include <QAction>
#include <QComboBox>
#include <QFormLayout>
#include <QHBoxLayout>
#include <QLabel>
#include <QLineEdit>
#include <QPushButton>
#include <QRadioButton>
#include <QSignalBlocker>
#include <QVBoxLayout>

#include "gui/settings/plan_text.h"
#include "gui/settings/settings_panel.h"
#include "gui/theme/metrics.h"
#include "gui/theme/theme.h"

namespace granary::gui {

namespace {

QString value(const Settings& settings, const QString& name) {
    return QString::fromStdString(settings.get(name.toStdString()));
}

}  // namespace

SettingsSheet::SettingsSheet(SettingsDraft& draft, QAction* apply, QAction* undo, QWidget* parent)
    : QDialog(parent),
      m_draft(draft),
      m_card(new QRadioButton(tr("Emulated card, memory in RAM"), this)),
      m_cpu(new QRadioButton(tr("CPU, full speed"), this)),
      m_device(new QComboBox(this)),
      m_kv(new QComboBox(this)),
      m_unused(new QLabel(this)),
      m_line(new QLabel(this)),
      m_lastBudget(QStringLiteral("40MiB")) {
    setObjectName(QStringLiteral("settingsSheet"));
    setWindowTitle(tr("Device and memory"));
    setModal(false);
    m_card->setObjectName(QStringLiteral("faceCard"));
    m_cpu->setObjectName(QStringLiteral("faceCpu"));
    m_card->setToolTip(
        tr("Shows how a discrete card would be used: experts are cached in its "
           "memory and give way to the conversation"));
    m_cpu->setToolTip(tr("Reads the experts in place from the model file"));

    auto* column = new QVBoxLayout(this);
    column->setContentsMargins(16, 16, 16, 16);
    column->setSpacing(metrics::kGrid);
    column->addWidget(m_card);
    column->addWidget(m_cpu);

    auto* form = new QFormLayout;
    form->setHorizontalSpacing(16);
    form->setVerticalSpacing(metrics::kHalfGrid);
    form->setFieldGrowthPolicy(QFormLayout::AllNonFixedFieldsGrow);
    m_device->setObjectName(QStringLiteral("device"));
    m_device->setAccessibleName(tr("Device"));
    m_device->setToolTip(tr("What computes") + QLatin1Char('\n') +
                         tr("Setting: %1").arg(QStringLiteral("device")));
    m_device->addItem(QStringLiteral("host"));
    auto* deviceLabel = new QLabel(tr("Device"), this);
    deviceLabel->setBuddy(m_device);
    form->addRow(deviceLabel, m_device);
    addField(form, QStringLiteral("vram-budget"), tr("Memory budget"),
             tr("What this program may hold on the card: 40MiB, 14.5GiB"));
    addField(form, QStringLiteral("vram-reserve"), tr("Left to others"),
             tr("Device memory that stays free for everybody else"));
    addField(form, QStringLiteral("cache-floor"), tr("Experts keep at least"),
             tr("auto, bytes (8MiB), or a share of all experts (12%)"));
    addField(form, QStringLiteral("threads"), tr("Threads"),
             tr("CPU threads that compute; auto: every core this program may use"));
    m_kv->setObjectName(QStringLiteral("kv"));
    m_kv->setAccessibleName(tr("Keys and values"));
    m_kv->setToolTip(tr("How exactly a conversation's keys and values are kept; smaller formats "
                        "leave more memory to the experts") +
                     QLatin1Char('\n') + tr("Setting: %1").arg(QStringLiteral("kv")));
    for (const auto& [format, words] : {std::pair{"auto", tr("auto")},
                                        {"f16", tr("f16: 16 bits a value")},
                                        {"int8", tr("int8: 8.25 bits a value")},
                                        {"k8v4", tr("k8v4: keys 8.25 bits, values 4.5")},
                                        {"q4", tr("q4: 4.5 bits a value, costs answers")}})
        m_kv->addItem(words, QString::fromLatin1(format));
    auto* kvLabel = new QLabel(tr("Keys and values"), this);
    kvLabel->setBuddy(m_kv);
    form->addRow(kvLabel, m_kv);
    column->addLayout(form);

    m_unused->setWordWrap(true);
    m_unused->setFont(metrics::small(font()));
    m_unused->setProperty("tone", QStringLiteral("muted"));
    column->addWidget(m_unused);
    m_line->setWordWrap(true);
    m_line->setFont(metrics::small(font()));
    m_line->setMinimumHeight(3 * QFontMetrics(m_line->font()).lineSpacing());
    m_line->setAlignment(Qt::AlignTop | Qt::AlignLeft);
    column->addWidget(m_line);
    column->addStretch();

    auto* buttons = new QHBoxLayout;
    auto* applyButton = new QPushButton(this);
    auto* undoButton = new QPushButton(this);
    auto* close = new QPushButton(tr("Close"), this);
    applyButton->setObjectName(QStringLiteral("sheetApply"));
    undoButton->setObjectName(QStringLiteral("sheetUndo"));
    close->setObjectName(QStringLiteral("sheetClose"));
    applyButton->setProperty("accent", true);
    applyButton->setAutoDefault(false);
    undoButton->setAutoDefault(false);
    close->setAutoDefault(false);
    followAction(applyButton, apply);
    followAction(undoButton, undo);
    buttons->addWidget(applyButton);
    buttons->addWidget(undoButton);
    buttons->addStretch();
    buttons->addWidget(close);
    column->addLayout(buttons);
    setMinimumWidth(520);

    connect(close, &QPushButton::clicked, this, &QDialog::close);
    connect(m_cpu, &QRadioButton::clicked, this,
            [this] { (void)m_draft.set(QStringLiteral("vram-budget"), QStringLiteral("0")); });
    connect(m_card, &QRadioButton::clicked, this,
            [this] { (void)m_draft.set(QStringLiteral("vram-budget"), m_lastBudget); });
    connect(m_device, &QComboBox::textActivated, this,
            [this](const QString& id) { (void)m_draft.set(QStringLiteral("device"), id); });
    connect(m_kv, &QComboBox::activated, this, [this](int index) {
        (void)m_draft.set(QStringLiteral("kv"), m_kv->itemData(index).toString());
    });
    connect(&m_draft, &SettingsDraft::changed, this, &SettingsSheet::showDraft);
    showDraft();
}

void SettingsSheet::addField(QFormLayout* form, const QString& name, const QString& label,
                             const QString& help) {
    Field field{name, new QLineEdit(this), new QLabel(this)};
    field.edit->setObjectName(name);
    field.edit->setAccessibleName(label);
    field.edit->setAccessibleDescription(help);
    field.edit->setToolTip(help + QLatin1Char('\n') + tr("Setting: %1").arg(name));
    field.error->setWordWrap(true);
    field.error->setFont(metrics::small(font()));
    field.error->setText(help);
    field.error->setProperty("tone", QStringLiteral("muted"));
    auto* caption = new QLabel(label, this);
    caption->setBuddy(field.edit);
    auto* box = new QVBoxLayout;
    box->setSpacing(2);
    box->addWidget(field.edit);
    box->addWidget(field.error);
    form->addRow(caption, box);
    connect(field.edit, &QLineEdit::textEdited, this,
            [this, name](const QString& text) { (void)m_draft.set(name, text.trimmed()); });
    m_fields.push_back(field);
}

void SettingsSheet::setDevices(const QString& used, const std::vector<gpu::UnusedDevice>& unused) {
    QStringList lines;
    if (!used.isEmpty()) lines << tr("In use: %1").arg(used);
    for (const gpu::UnusedDevice& device : unused)
        lines << tr("Not used: %1 (%2)")
                     .arg(QString::fromStdString(device.name),
                          QString::fromStdString(device.reason));
    m_unused->setTextFormat(Qt::PlainText);
    m_unused->setText(lines.join(QLatin1Char('\n')));
    m_unused->setVisible(!lines.isEmpty());
}

void SettingsSheet::showDraft() {
    const Settings& settings = m_draft.edited();
    const bool loaded = m_draft.state() != SettingsDraft::State::Empty;
    const bool card = settings.vram_budget > 0;
    if (card) m_lastBudget = value(settings, QStringLiteral("vram-budget"));
    m_card->setChecked(card);
    m_cpu->setChecked(!card);
    m_card->setEnabled(loaded);
    m_cpu->setEnabled(loaded);
    m_device->setEnabled(loaded);
    m_kv->setEnabled(loaded);
    for (const Field& field : m_fields) {
        const bool acts = loaded && (card || field.name == QLatin1String("threads"));
        field.edit->setEnabled(acts);
        const QString error = m_draft.fieldError(field.name);
        // A field that is being typed in keeps what was typed: "40M" is on the way to "40MiB".
        if (error.isEmpty() && !field.edit->hasFocus())
            field.edit->setText(value(settings, field.name));
        field.error->setText(error.isEmpty() ? field.edit->accessibleDescription() : error);
        Theme::setProperty(field.error, "tone",
                           error.isEmpty() ? QStringLiteral("muted") : QStringLiteral("danger"));
    }
    {
        const QSignalBlocker blocker(m_device);
        const QString device = QString::fromStdString(settings.device);
        if (m_device->findText(device) < 0) m_device->addItem(device);
        m_device->setCurrentText(device);
    }
    {
        const QSignalBlocker blocker(m_kv);
        const bool known = !settings.kv && m_draft.plan();
        m_kv->setItemText(
            0, known ? tr("auto: %1").arg(formatText(m_draft.plan()->kv_format)) : tr("auto"));
        m_kv->setCurrentIndex(m_kv->findData(value(settings, QStringLiteral("kv"))));
    }
    QString text = m_draft.refusal().toHtmlEscaped();
    QString tone = QStringLiteral("danger");
    if (text.isEmpty() && m_draft.plan()) {
        const Plan& running = m_draft.runningPlan() ? *m_draft.runningPlan() : *m_draft.plan();
        text = planText(running, *m_draft.plan());
        tone =
            m_draft.state() == SettingsDraft::State::Edited ? QString() : QStringLiteral("muted");
    }
    m_line->setText(text);
    Theme::setProperty(m_line, "tone", tone);
}

}  // namespace granary::gui

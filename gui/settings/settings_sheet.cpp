// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/settings/settings_sheet.h"

#include <QAction>
#include <QCheckBox>
#include <QComboBox>
#include <QFormLayout>
#include <QHBoxLayout>
#include <QLabel>
#include <QLineEdit>
#include <QPushButton>
#include <QRadioButton>
#include <QScreen>
#include <QShowEvent>
#include <QSignalBlocker>
#include <QStandardItemModel>
#include <QVBoxLayout>
#include <algorithm>
#include <climits>

#include "gui/settings/plan_text.h"
#include "gui/settings/settings_panel.h"
#include "gui/theme/metrics.h"
#include "gui/theme/theme.h"
#include "gui/theme/units.h"
#include "gui/widgets/full_height_scroll.h"

namespace granary::gui {

namespace {

QString value(const Settings& settings, const QString& name) {
    return QString::fromStdString(settings.get(name.toStdString()));
}

}  // namespace

QString deviceLabel(const gpu::FoundDevice& device) {
    const QString name = QString::fromStdString(device.name);
    return device.total_bytes == 0
               ? name
               : QStringLiteral("%1, %2").arg(name, bytesText(device.total_bytes));
}

SettingsSheet::SettingsSheet(SettingsDraft& draft, QAction* apply, QAction* undo, QWidget* parent)
    : QDialog(parent),
      m_draft(draft),
      m_cpu(new QRadioButton(tr("CPU, full speed"), this)),
      m_card(new QRadioButton(tr("Emulated card, memory in RAM"), this)),
      m_unused(new QLabel(this)),
      m_deterministic(new QCheckBox(tr("The same question gets the same answer"), this)),
      m_line(new QLabel(this)),
      m_lastBudget(QStringLiteral("40MiB")) {
    setObjectName(QStringLiteral("settingsSheet"));
    setWindowTitle(tr("Device and memory"));
    setModal(false);
    auto* content = new QWidget;
    m_column = new QVBoxLayout(content);
    m_column->setContentsMargins(16, 12, 16, 4);
    m_column->setSpacing(metrics::kGrid);

    QFormLayout* form = addSection(tr("Device"));
    m_device = addChoice(form, QStringLiteral("device"), tr("Computes on"), tr("What computes"),
                         {{"auto", tr("Automatic")}, {"host", tr("CPU")}});
    m_card->setObjectName(QStringLiteral("faceCard"));
    m_cpu->setObjectName(QStringLiteral("faceCpu"));
    m_card->setToolTip(
        tr("Shows how a discrete card would be used: experts are cached in its "
           "memory and give way to the conversation"));
    m_cpu->setToolTip(tr("Reads the experts in place from the model file"));
    auto* faces = new QHBoxLayout;
    faces->setSpacing(16);
    faces->addWidget(m_cpu);
    faces->addWidget(m_card);
    faces->addStretch();
    form->addRow(QString(), faces);
    m_unused->setWordWrap(true);
    m_unused->setTextFormat(Qt::PlainText);
    m_unused->setFont(metrics::small(font()));
    m_unused->setProperty("tone", QStringLiteral("muted"));
    form->addRow(QString(), m_unused);
    addField(form, QStringLiteral("threads"), tr("CPU threads"),
             tr("auto: every core that this program may use"));

    form = addSection(tr("Memory"));
    addField(form, QStringLiteral("vram-budget"), tr("Budget"),
             tr("What this program may hold on the card: 40MiB, 14.5GiB"));
    addField(form, QStringLiteral("vram-reserve"), tr("Left to others"),
             tr("Device memory that stays free for everybody else"));
    addField(form, QStringLiteral("cache-floor"), tr("Experts keep at least"),
             tr("auto, a size (8MiB), or a share of all experts (12%)"));
    addField(form, QStringLiteral("page-lock"), tr("Locked for the card"),
             tr("auto, or main memory that a GPU may copy from: 24GiB"));
    m_kv = addChoice(form, QStringLiteral("kv"), tr("Keys and values"),
                     tr("How exactly a conversation's keys and values are kept; smaller formats "
                        "leave more memory to the experts"),
                     {{"auto", tr("auto")},
                      {"f16", tr("f16: 16 bits a value")},
                      {"int8", tr("int8: 8.25 bits a value")},
                      {"k8v4", tr("k8v4: keys 8.25 bits, values 4.5")},
                      {"q4", tr("q4: 4.5 bits a value, costs answers")}});

    form = addSection(tr("Answers"));
    m_rope = addChoice(form, QStringLiteral("rope-scaling"), tr("Stretch positions"),
                       tr("For contexts longer than what the model was trained for"),
                       {{"auto", tr("as the model file says")},
                        {"none", tr("not at all")},
                        {"yarn", tr("YaRN: near tokens stay exact")},
                        {"linear", tr("linear: all alike")}});
    addField(form, QStringLiteral("rope-factor"), tr("Stretch by"),
             tr("auto, or a factor: 2 doubles what the model was trained for"));
    m_deterministic->setObjectName(QStringLiteral("deterministic"));
    m_deterministic->setToolTip(tr("At any budget and with any history of the memory. Off lets the "
                                   "CPU take a share of the work") +
                                QLatin1Char('\n') +
                                tr("Setting: %1").arg(QStringLiteral("deterministic")));
    form->addRow(QString(), m_deterministic);
    addField(form, QStringLiteral("cpu-share"), tr("Experts left to the CPU"),
             tr("auto, or a share of those that are not on the card: 40%"));

    // One column of labels through all sections.
    int widest = 0;
    for (const QLabel* caption : m_captions) widest = std::max(widest, caption->sizeHint().width());
    // A caption and what stands in its field share a line.
    for (QLabel* caption : m_captions) {
        caption->setMinimumWidth(widest);
        caption->setAlignment(Qt::AlignLeft | Qt::AlignTop);
        caption->setContentsMargins(0, (metrics::kControl - caption->fontMetrics().height()) / 2, 0,
                                    0);
    }
    m_line->setWordWrap(true);
    m_line->setFont(metrics::small(font()));
    m_line->setMinimumHeight(3 * QFontMetrics(m_line->font()).lineSpacing());
    m_line->setAlignment(Qt::AlignTop | Qt::AlignLeft);
    m_column->addStretch();
    m_scroll = new FullHeightScroll(this);
    m_scroll->setContent(content);

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
    // What an edit leads to and the buttons stay in sight where the rest scrolls.
    auto* lower = new QVBoxLayout;
    lower->setContentsMargins(16, 0, 16, 16);
    lower->setSpacing(metrics::kGrid);
    lower->addWidget(m_line);
    lower->addLayout(buttons);
    auto* column = new QVBoxLayout(this);
    column->setContentsMargins(0, 0, 0, 0);
    column->setSpacing(metrics::kGrid);
    column->addWidget(m_scroll, 1);
    column->addLayout(lower);
    setMinimumWidth(560);

    connect(close, &QPushButton::clicked, this, &QDialog::close);
    connect(m_cpu, &QRadioButton::clicked, this,
            [this] { (void)m_draft.set(QStringLiteral("vram-budget"), QStringLiteral("0")); });
    connect(m_card, &QRadioButton::clicked, this,
            [this] { (void)m_draft.set(QStringLiteral("vram-budget"), m_lastBudget); });
    connect(m_device, &QComboBox::activated, this,
            [this](int index) { chooseDevice(m_device->itemData(index).toString()); });
    for (QComboBox* choice : {m_kv, m_rope})
        connect(choice, &QComboBox::activated, this, [this, choice](int index) {
            (void)m_draft.set(choice->objectName(), choice->itemData(index).toString());
        });
    connect(m_deterministic, &QCheckBox::clicked, this, [this](bool on) {
        (void)m_draft.set(QStringLiteral("deterministic"),
                          on ? QStringLiteral("on") : QStringLiteral("off"));
    });
    connect(&m_draft, &SettingsDraft::changed, this, &SettingsSheet::showDraft);
    showDraft();
}

QFormLayout* SettingsSheet::addSection(const QString& title) {
    auto* heading = new QLabel(title, this);
    heading->setFont(metrics::strong(font()));
    if (m_column->count() > 0) m_column->addSpacing(metrics::kHalfGrid);
    m_column->addWidget(heading);
    auto* form = new QFormLayout;
    form->setHorizontalSpacing(16);
    form->setVerticalSpacing(metrics::kHalfGrid);
    form->setFieldGrowthPolicy(QFormLayout::AllNonFixedFieldsGrow);
    m_column->addLayout(form);
    return form;
}

QComboBox* SettingsSheet::addChoice(QFormLayout* form, const QString& name, const QString& label,
                                    const QString& help, const Choices& choices) {
    auto* choice = new QComboBox(this);
    choice->setObjectName(name);
    choice->setAccessibleName(label);
    choice->setToolTip(help + QLatin1Char('\n') + tr("Setting: %1").arg(name));
    for (const auto& [value, words] : choices) choice->addItem(words, QString::fromLatin1(value));
    auto* caption = new QLabel(label, this);
    caption->setBuddy(choice);
    m_captions.push_back(caption);
    form->addRow(caption, choice);
    return choice;
}

// On another device all of its memory: a budget belongs to the card that it was made for.
void SettingsSheet::chooseDevice(const QString& id) {
    Settings settings = m_draft.edited();
    settings.device = id.toStdString();
    settings.vram_budget = 0;
    settings.granule = 0;
    m_draft.edit(settings);
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
    m_captions.push_back(caption);
    auto* box = new QVBoxLayout;
    box->setSpacing(2);
    box->addWidget(field.edit);
    box->addWidget(field.error);
    form->addRow(caption, box);
    connect(field.edit, &QLineEdit::textEdited, this,
            [this, name](const QString& text) { (void)m_draft.set(name, text.trimmed()); });
    m_fields.push_back(field);
}

void SettingsSheet::setDevices(const std::optional<gpu::DeviceInfo>& used,
                               const std::vector<gpu::FoundDevice>& found) {
    m_used = used;
    m_found = found;
    showDevices();
    showDraft();
}

// What "auto" means, as far as it is known: it is decided when a model is loaded.
QString SettingsSheet::automaticText() const {
    if (m_found.empty()) return tr("Automatic: the devices are being looked for");
    const auto first = std::find_if(m_found.begin(), m_found.end(),
                                    [](const auto& device) { return device.usable(); });
    if (first == m_found.end() || first->id == "host")
        return tr("Automatic: the CPU, as there is no other device");
    return tr("Automatic: %1, where it has room").arg(QString::fromStdString(first->name));
}

void SettingsSheet::showEvent(QShowEvent* event) {
    // All of it where the screen has room; else it scrolls.
    constexpr int kFrame = 48;  // a title bar and a little air
    const int most = screen() ? screen()->availableSize().height() - kFrame : INT_MAX;
    if (!event->spontaneous()) {
        // How high lines that wrap are is known once the width is.
        m_scroll->updateGeometry();
        const int width = sizeHint().width();
        QWidget* content = m_column->parentWidget();
        const int whole = sizeHint().height() - m_scroll->sizeHint().height() +
                          (content->hasHeightForWidth() ? content->heightForWidth(width)
                                                        : content->sizeHint().height());
        resize(width, std::min(whole, most));
    }
    QDialog::showEvent(event);
}

// Those that cannot be used stand in the list, too, so that nobody looks for them.
void SettingsSheet::showDevices() {
    const QSignalBlocker blocker(m_device);
    m_device->clear();
    m_device->addItem(automaticText(), QStringLiteral("auto"));
    QStringList notes;
    for (const gpu::FoundDevice& device : m_found) {
        const QString name = QString::fromStdString(device.name);
        const QString note = QString::fromStdString(device.note);
        if (device.id == "host") {
            m_device->addItem(tr("CPU: %1").arg(deviceLabel(device)), QStringLiteral("host"));
        } else if (device.usable()) {
            m_device->addItem(deviceLabel(device), QString::fromStdString(device.id));
            if (!note.isEmpty()) notes << tr("%1: %2.").arg(name, note);
        } else {
            m_device->addItem(tr("%1 (cannot be used)").arg(name));
            if (auto* items = qobject_cast<QStandardItemModel*>(m_device->model())) {
                QStandardItem* item = items->item(m_device->count() - 1);
                item->setEnabled(false);
                item->setToolTip(note);
            }
            notes << tr("%1 cannot be used: %2.").arg(name, note);
        }
    }
    if (m_found.empty()) m_device->addItem(tr("CPU"), QStringLiteral("host"));
    m_unused->setText(notes.join(QLatin1Char('\n')));
    m_unused->setVisible(!notes.isEmpty());
}

void SettingsSheet::showDraft() {
    const Settings& settings = m_draft.edited();
    const bool loaded = m_draft.state() != SettingsDraft::State::Empty;
    // Of a model that is not there yet only what it is loaded with is known.
    const bool card = loaded ? m_draft.onCard() : settings.vram_budget > 0;
    const bool host =
        settings.device == "host" ||
        (settings.device == "auto" && !m_draft.isElsewhere() && m_used && m_used->id == "host");
    if (host && settings.vram_budget > 0)
        m_lastBudget = value(settings, QStringLiteral("vram-budget"));
    m_card->setChecked(card);
    m_cpu->setChecked(!card);
    m_card->setVisible(host);
    m_cpu->setVisible(host);
    for (QWidget* control :
         std::initializer_list<QWidget*>{m_card, m_cpu, m_device, m_kv, m_rope, m_deterministic})
        control->setEnabled(loaded);
    const bool stretched =
        m_draft.plan() ? m_draft.plan()->rope.kind != RopeKind::none || settings.rope_scaling
                       : settings.rope_scaling.has_value();
    for (const Field& field : m_fields) {
        const bool always = field.name == QLatin1String("threads");
        const bool factor = field.name == QLatin1String("rope-factor");
        const bool acts =
            loaded && (always || (factor ? stretched || settings.rope_factor > 0 : card));
        field.edit->setEnabled(acts);
        const QString error = m_draft.fieldError(field.name);
        // A field that is being typed in keeps what was typed: "40M" is on the way to "40MiB".
        if (error.isEmpty() && !field.edit->hasFocus())
            field.edit->setText(value(settings, field.name));
        field.error->setText(error.isEmpty() ? field.edit->accessibleDescription() : error);
        Theme::setProperty(field.error, "tone",
                           error.isEmpty() ? QStringLiteral("muted") : QStringLiteral("danger"));
    }
    for (QLabel* caption : m_captions) caption->setEnabled(caption->buddy()->isEnabled());
    {
        const QSignalBlocker blocker(m_device);
        const QString device = QString::fromStdString(settings.device);
        if (m_device->findData(device) < 0) m_device->addItem(device, device);
        m_device->setCurrentIndex(m_device->findData(device));
    }
    {
        const QSignalBlocker blocker(m_kv);
        const bool known = !settings.kv && m_draft.plan();
        m_kv->setItemText(
            0, known ? tr("auto: %1").arg(formatText(m_draft.plan()->kv_format)) : tr("auto"));
        m_kv->setCurrentIndex(m_kv->findData(value(settings, QStringLiteral("kv"))));
    }
    {
        const QSignalBlocker blocker(m_rope);
        m_rope->setCurrentIndex(m_rope->findData(value(settings, QStringLiteral("rope-scaling"))));
    }
    m_deterministic->setChecked(settings.deterministic);
    QString text = m_draft.refusal().toHtmlEscaped();
    QString tone = QStringLiteral("danger");
    if (!loaded) {
        text = noSettingsText(m_draft);
        tone = QStringLiteral("muted");
    } else if (text.isEmpty() && m_draft.isElsewhere()) {
        text = tr("What fits on the other device shows once this is applied.");
        tone = QString();
    } else if (text.isEmpty() && m_draft.plan()) {
        const Plan& running = m_draft.runningPlan() ? *m_draft.runningPlan() : *m_draft.plan();
        text = planText(running, *m_draft.plan());
        tone =
            m_draft.state() == SettingsDraft::State::Edited ? QString() : QStringLiteral("muted");
    }
    m_line->setText(text);
    Theme::setProperty(m_line, "tone", tone);
}

}  // namespace granary::gui

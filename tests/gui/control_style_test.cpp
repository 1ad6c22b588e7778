// SPDX-License-Identifier: GPL-3.0-or-later
// Every kind of control has an outline that can be seen, in each state, on each surface, in both
// themes: 3:1 against what is around it (WCAG 2.1, 1.4.11), measured on what is drawn.
#include "gui/theme/control_style.h"

#include <QCheckBox>
#include <QComboBox>
#include <QDoubleSpinBox>
#include <QLineEdit>
#include <QPlainTextEdit>
#include <QPushButton>
#include <QRadioButton>
#include <QStyleFactory>
#include <QToolButton>
#include <QVBoxLayout>
#include <QtTest>
#include <functional>
#include <vector>

#include "gui/script/outline_audit.h"
#include "gui/theme/contrast.h"
#include "gui/theme/theme.h"
#include "gui/widgets/panel.h"

using namespace granary::gui;

namespace {

using Make = std::function<QWidget*()>;

struct Kind {
    const char* name;
    Make make;
};

template <class Button>
QWidget* choice(bool checked) {
    auto* button = new Button(QStringLiteral("Choice"));
    button->setAutoExclusive(false);
    button->setCheckable(true);
    button->setChecked(checked);
    return button;
}

QWidget* compound() {
    auto* panel = new Panel;
    auto* editor = new QLineEdit(panel);
    editor->setFrame(false);
    panel->setEditor(editor);
    panel->setFocusProxy(editor);
    (new QVBoxLayout(panel))->addWidget(editor);
    return panel;
}

const std::vector<Kind>& kinds() {
    static const std::vector<Kind> all{
        {"line edit", [] { return new QLineEdit(QStringLiteral("auto")); }},
        {"combo box",
         [] {
             auto* box = new QComboBox;
             box->addItem(QStringLiteral("auto"));
             return box;
         }},
        {"spin box", [] { return new QSpinBox; }},
        {"decimal spin box", [] { return new QDoubleSpinBox; }},
        {"text edit", [] { return new QPlainTextEdit; }},
        {"compound field", compound},
        {"check box", [] { return choice<QCheckBox>(false); }},
        {"checked box", [] { return choice<QCheckBox>(true); }},
        {"half checked box",
         [] {
             auto* box = new QCheckBox(QStringLiteral("Choice"));
             box->setTristate(true);
             box->setCheckState(Qt::PartiallyChecked);
             return box;
         }},
        {"radio button", [] { return choice<QRadioButton>(false); }},
        {"checked radio button", [] { return choice<QRadioButton>(true); }}};
    return all;
}

enum class Look { normal, hover, focus, disabled };

// A window in the colour of a surface with one control on it.
struct Stage {
    Stage(const Make& make, const QColor& surface) : control(make()) {
        QPalette colours = window.palette();
        colours.setColor(QPalette::Window, surface);
        window.setPalette(colours);
        control->setPalette(QApplication::palette());
        auto* layout = new QVBoxLayout(&window);
        layout->setContentsMargins(16, 16, 16, 16);
        layout->addWidget(control);
        layout->addWidget(&other);
        window.show();
        window.activateWindow();
    }
    void take(Look look) {
        control->setEnabled(look != Look::disabled);
        control->setAttribute(Qt::WA_UnderMouse, look == Look::hover);
        if (look == Look::focus)
            control->setFocus(Qt::TabFocusReason);
        else
            other.setFocus(Qt::TabFocusReason);
        control->update();
    }
    QWidget window;
    QWidget* control;
    QPushButton other{QStringLiteral("Other")};
};

}  // namespace

class ControlStyleTest : public QObject {
    Q_OBJECT

  private Q_SLOTS:
    void everyOutlineIsSeen_data() {
        QTest::addColumn<bool>("dark");
        QTest::newRow("light") << false;
        QTest::newRow("dark") << true;
    }
    void everyOutlineIsSeen() {
        QFETCH(bool, dark);
        Theme theme(*qApp);
        theme.setMode(dark ? ThemeMode::Dark : ThemeMode::Light);
        const QPalette palette = Theme::palette(dark);
        const struct {
            const char* name;
            QColor colour;
        } surfaces[] = {{"window", palette.color(QPalette::Window)},
                        {"base", palette.color(QPalette::Base)},
                        {"card", Theme::tones(dark).card}};
        const std::pair<const char*, Look> looks[] = {{"normal", Look::normal},
                                                      {"hover", Look::hover},
                                                      {"focus", Look::focus},
                                                      {"disabled", Look::disabled}};
        for (const Kind& kind : kinds()) {
            for (const auto& surface : surfaces) {
                Stage stage(kind.make, surface.colour);
                QVERIFY(QTest::qWaitForWindowActive(&stage.window));
                for (const auto& [name, look] : looks) {
                    stage.take(look);
                    const auto contrast = outlineContrast(stage.control);
                    QVERIFY2(contrast, kind.name);
                    QVERIFY2(*contrast >= kLeastOutline,
                             qPrintable(QStringLiteral("%1, %2, on %3: %4")
                                            .arg(QLatin1String(kind.name), QLatin1String(name),
                                                 QLatin1String(surface.name))
                                            .arg(*contrast)));
                }
            }
        }
    }

    // The measure itself: Fusion's own outlines on the dark window are what it must find.
    void theMeasureFindsFaintOutlines() {
        Theme theme(*qApp);
        theme.setMode(ThemeMode::Dark);
        const std::unique_ptr<QStyle> fusion(QStyleFactory::create(QStringLiteral("Fusion")));
        QWidget window;
        QLineEdit edit;
        auto* layout = new QVBoxLayout(&window);
        layout->addWidget(&edit);
        edit.setStyle(fusion.get());
        window.show();
        QVERIFY(QTest::qWaitForWindowExposed(&window));
        edit.clearFocus();
        const auto contrast = outlineContrast(&edit);
        QVERIFY(contrast);
        QVERIFY2(*contrast < kLeastOutline, qPrintable(QString::number(*contrast)));
    }

    // A ring two pixels wide in another colour than without the focus, also on filled buttons.
    void theFocusIsSeen_data() { everyOutlineIsSeen_data(); }
    void theFocusIsSeen() {
        QFETCH(bool, dark);
        Theme theme(*qApp);
        theme.setMode(dark ? ThemeMode::Dark : ThemeMode::Light);
        const auto push = [](bool accent) {
            return [accent]() -> QWidget* {
                auto* button = new QPushButton(QStringLiteral("Go on"));
                button->setProperty("accent", accent);
                return button;
            };
        };
        const auto tool = [](const char* segment, bool checked) {
            return [segment, checked]() -> QWidget* {
                auto* button = new QToolButton;
                button->setText(QStringLiteral("Pool"));
                button->setCheckable(true);
                button->setChecked(checked);
                button->setFocusPolicy(Qt::StrongFocus);
                button->setAutoRaise(true);
                if (segment) button->setProperty("segment", QLatin1String(segment));
                return button;
            };
        };
        const auto own = []() -> QWidget* {
            auto* button = new AccentButton;
            button->setText(QStringLiteral("Send"));
            button->setToolButtonStyle(Qt::ToolButtonTextOnly);
            return button;
        };
        std::vector<Kind> all = kinds();
        all.insert(all.end(), {{"push button", push(false)},
                               {"accent push button", push(true)},
                               {"tool button", tool(nullptr, false)},
                               {"checked tool button", tool(nullptr, true)},
                               {"segment", tool("mid", false)},
                               {"checked segment", tool("mid", true)},
                               {"accent button", own}});
        for (const Kind& kind : all) {
            Stage stage(kind.make, Theme::palette(dark).color(QPalette::Window));
            QVERIFY(QTest::qWaitForWindowActive(&stage.window));
            stage.take(Look::normal);
            const QImage without = stage.control->grab().toImage();
            stage.take(Look::focus);
            const QImage with = stage.control->grab().toImage();
            // A ring one pixel wide around the smallest of them, a box of 16, has 60 pixels.
            int changed = 0;
            for (int y = 0; y < with.height(); ++y)
                for (int x = 0; x < with.width(); ++x)
                    changed += contrastRatio(with.pixelColor(x, y), without.pixelColor(x, y)) >= 2;
            QVERIFY2(
                changed >= 40,
                qPrintable(
                    QStringLiteral("%1: %2 pixels").arg(QLatin1String(kind.name)).arg(changed)));
        }
    }

    void fieldsShareOneHeight() {
        Theme theme(*qApp);
        for (const Kind& kind : kinds()) {
            const std::unique_ptr<QWidget> widget(kind.make());
            if (qobject_cast<QPlainTextEdit*>(widget.get()) ||
                qobject_cast<QAbstractButton*>(widget.get()) || qobject_cast<Panel*>(widget.get()))
                continue;
            widget->ensurePolished();
            QCOMPARE(std::max(widget->sizeHint().height(), widget->minimumHeight()), 28);
        }
    }
};

QTEST_MAIN(ControlStyleTest)
#include "control_style_test.moc"

//! HTML forms. They post `application/x-www-form-urlencoded`, which `Request::form` parses.

use crate::http::pages::HtmlBuilder;

/// Hidden values, fields with labels, and buttons, in the order of the calls.
#[derive(Debug, Clone)]
pub struct Form {
    action: String,
    body: HtmlBuilder,
}

#[derive(Debug, Clone, Copy)]
pub struct FormField<'a> {
    /// The name in the posted form.
    pub name: &'static str,
    pub label: &'a str,
    pub kind: FormFieldKind,
    pub value: &'a str,
    /// The error message for `value`.
    pub error: Option<&'a str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FormFieldKind {
    /// An email address. The browser may complete it.
    Email,
    /// The code of a device. The browser must not complete or correct it.
    Code,
}

impl Form {
    /// Posts to a path of this server (see [`super::form_action`]).
    pub fn post(action: &str) -> Self {
        Self { action: action.to_owned(), body: HtmlBuilder::default() }
    }

    pub fn hidden(mut self, name: &'static str, value: &str) -> Self {
        self.body.open("input", &[("type", "hidden"), ("name", name), ("value", value)]);
        self.body.0.push('\n');
        self
    }

    pub fn field(mut self, field: &FormField<'_>) -> Self {
        let error_id = format!("{}-error", field.name);
        let mut attributes = vec![("id", field.name), ("name", field.name), ("value", field.value)];
        attributes.extend_from_slice(match field.kind {
            FormFieldKind::Email => &[("type", "email"), ("autocomplete", "email"), ("maxlength", "254")][..],
            FormFieldKind::Code => &[("type", "text"), ("autocomplete", "off"), ("maxlength", "128")][..],
        });
        attributes.extend([("autocapitalize", "none"), ("spellcheck", "false"), ("required", "required")]);
        if field.error.is_some() {
            attributes.extend([("aria-invalid", "true"), ("aria-describedby", error_id.as_str())]);
        }
        self.body.open("div", &[("class", "field")]);
        self.body.element("label", &[("for", field.name)], field.label);
        self.body.open("input", &attributes);
        self.body.0.push('\n');
        if let Some(error) = field.error {
            self.body.element("p", &[("class", "error-text"), ("id", &error_id)], error);
        }
        self.body.close("div");
        self
    }

    /// A choice of one of `options`, each a value and its text.
    pub fn select(
        mut self,
        name: &'static str,
        label: &str,
        options: &[(&str, &str)],
        selected: &str,
    ) -> Self {
        self.body.open("div", &[("class", "field")]);
        self.body.element("label", &[("for", name)], label);
        self.body.open("select", &[("id", name), ("name", name)]);
        for (value, text) in options {
            let mut attributes = vec![("value", *value)];
            attributes.extend((*value == selected).then_some(("selected", "selected")));
            self.body.element("option", &attributes, text);
        }
        self.body.close("select");
        self.body.close("div");
        self
    }

    pub fn button(mut self, label: &str) -> Self {
        self.body.element("button", &[("type", "submit")], label);
        self
    }

    /// A button for an action that removes something.
    pub fn danger_button(mut self, label: &str) -> Self {
        self.body.element("button", &[("type", "submit"), ("class", "danger")], label);
        self
    }

    pub(super) fn write(&self, page: &mut HtmlBuilder) {
        page.open("form", &[("method", "post"), ("action", &self.action)]);
        page.0.push('\n');
        page.0.push_str(&self.body.0);
        page.close("form");
    }
}

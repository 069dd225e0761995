//! A form of a page: it posts `application/x-www-form-urlencoded`, which `Request::form` reads.

use crate::http::pages::HtmlBuilder;

/// A form under construction: hidden values, fields with labels, buttons, in the order in which they are added.
#[derive(Debug, Clone)]
pub struct Form {
    action: String,
    body: HtmlBuilder,
}

/// A line that the user fills in.
#[derive(Debug, Clone, Copy)]
pub struct FormField<'a> {
    /// Its name in the body of the request.
    pub name: &'static str,
    /// What it asks for.
    pub label: &'a str,
    /// What may stand in it.
    pub kind: FormFieldKind,
    /// What stands in it at first.
    pub value: &'a str,
    /// What is wrong with that.
    pub fault: Option<&'a str>,
}

/// What may stand in a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FormFieldKind {
    /// An e-mail address, which the browser may fill in.
    Email,
    /// A code as a device shows it: nothing corrects or completes it.
    Code,
}

impl Form {
    /// A form that posts to a path of this server (see [`super::action`]).
    #[must_use]
    pub fn post(action: &str) -> Self {
        Self { action: action.to_owned(), body: HtmlBuilder::default() }
    }

    /// A value that goes along unseen.
    #[must_use]
    pub fn hidden(mut self, name: &'static str, value: &str) -> Self {
        self.body.open("input", &[("type", "hidden"), ("name", name), ("value", value)]);
        self.body.0.push('\n');
        self
    }

    /// A field that must be filled in.
    #[must_use]
    pub fn field(mut self, field: &FormField<'_>) -> Self {
        let fault_id = format!("{}-fault", field.name);
        let mut attributes = vec![("id", field.name), ("name", field.name), ("value", field.value)];
        attributes.extend_from_slice(match field.kind {
            FormFieldKind::Email => &[("type", "email"), ("autocomplete", "email"), ("maxlength", "254")][..],
            FormFieldKind::Code => &[("type", "text"), ("autocomplete", "off"), ("maxlength", "128")][..],
        });
        attributes.extend([("autocapitalize", "none"), ("spellcheck", "false"), ("required", "required")]);
        if field.fault.is_some() {
            attributes.extend([("aria-invalid", "true"), ("aria-describedby", fault_id.as_str())]);
        }
        self.body.open("div", &[("class", "field")]);
        self.body.element("label", &[("for", field.name)], field.label);
        self.body.open("input", &attributes);
        self.body.0.push('\n');
        if let Some(fault) = field.fault {
            self.body.element("p", &[("class", "fault"), ("id", &fault_id)], fault);
        }
        self.body.close("div");
        self
    }

    /// The button that sends the form.
    #[must_use]
    pub fn button(mut self, label: &str) -> Self {
        self.body.element("button", &[("type", "submit")], label);
        self
    }

    /// As [`Form::button`], for what takes something away.
    #[must_use]
    pub fn grave_button(mut self, label: &str) -> Self {
        self.body.element("button", &[("type", "submit"), ("class", "grave")], label);
        self
    }

    pub(super) fn write(&self, page: &mut HtmlBuilder) {
        page.open("form", &[("method", "post"), ("action", &self.action)]);
        page.0.push('\n');
        page.0.push_str(&self.body.0);
        page.close("form");
    }
}

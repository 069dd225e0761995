//! The query of a list: its conditions and their values, for the count of the rows and for a page.

use std::rc::Rc;

use crate::domain::cue::tags::Tags;
use crate::domain::row_keys::UserKey;
use crate::error::Result;
use crate::store::ReadTx;
use crate::store::db::columns::ToRow;

#[derive(Clone)]
pub(in crate::store) struct Scan {
    /// The clause `FROM`, whose parameters come before those of the conditions.
    pub source: String,
    conditions: Vec<String>,
    values: Vec<Rc<dyn ToRow>>,
}

const OTHER_TAG: &str = " AND EXISTS (
    SELECT 1 FROM cue_tags o WHERE o.user_key = t.user_key AND o.tag = ? AND o.cue_key = t.cue_key)";

impl Scan {
    pub fn new(source: impl Into<String>) -> Self {
        Self { source: source.into(), conditions: vec!["true".to_owned()], values: Vec::new() }
    }

    /// The keys of the user's cues that have all of the tags, as the column `tagged`, in their order.
    pub fn tagged(user_key: UserKey, tags: &Tags) -> Self {
        let others = OTHER_TAG.repeat(tags.iter().len().saturating_sub(1));
        let source = format!(
            "(SELECT t.cue_key AS tagged FROM cue_tags t WHERE t.user_key = ? AND t.tag = ?{others})"
        );
        let mut scan = Self::new(source);
        scan.values.push(Rc::new(user_key));
        scan.values.extend(tags.iter().map(|tag| Rc::new(tag.to_owned()) as Rc<dyn ToRow>));
        scan
    }

    pub fn condition(&mut self, condition: impl Into<String>) {
        self.conditions.push(condition.into());
    }

    /// Adds a condition with one value, or with the values of a tuple, if there is one.
    pub fn filter(&mut self, condition: &str, value: Option<impl ToRow + 'static>) {
        if let Some(value) = value {
            self.condition(condition);
            self.values.push(Rc::new(value));
        }
    }

    /// The values of the column `cue` are keys of the user's cues that have all of the tags.
    pub fn filter_by_tags(&mut self, cue: &str, user_key: UserKey, tags: &Tags) {
        if !tags.is_empty() {
            let Self { source, values, .. } = Self::tagged(user_key, tags);
            self.condition(format!("{cue} IN (SELECT tagged FROM {source})"));
            self.values.extend(values);
        }
    }

    pub fn sql(&self, columns: &str) -> String {
        let Self { source, conditions, .. } = self;
        format!("SELECT {columns} FROM {source} WHERE {}", conditions.join(" AND "))
    }

    /// The parameters of [`Self::sql`].
    pub fn values(&self) -> &[Rc<dyn ToRow>] {
        &self.values
    }

    pub fn count(&self, read: &ReadTx<'_>) -> Result<i64> {
        read.one(&self.sql("count(*)"), self.values())
    }
}

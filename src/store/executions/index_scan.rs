//! A scan of executions along one index, counted or by pages.

use rusqlite::params_from_iter;
use rusqlite::types::Value;

use crate::error::Result;
use crate::store::ReadTx;

/// A query along one index. Its conditions are fixed texts; `values` holds their parameters.
pub struct IndexScan {
    index: &'static str,
    pub conditions: Vec<String>,
    pub values: Vec<Value>,
}

impl IndexScan {
    /// A scan along `index`; an empty name leaves the choice to SQLite.
    pub fn new(index: &'static str) -> Self {
        Self { index, conditions: Vec::new(), values: Vec::new() }
    }

    /// Adds a condition with one parameter.
    pub fn filter(&mut self, condition: &str, value: impl Into<Value>) {
        self.conditions.push(condition.to_owned());
        self.values.push(value.into());
    }

    /// The query for `columns`, without an order.
    pub fn sql(&self, columns: &str) -> String {
        let index = if self.index.is_empty() { String::new() } else { format!("INDEXED BY {}", self.index) };
        format!("SELECT {columns} FROM executions e {index} WHERE {}", self.conditions.join(" AND "))
    }

    /// The number of matches.
    pub fn count(&self, read: &ReadTx<'_>) -> Result<i64> {
        read.one(&self.sql("count(*)"), params_from_iter(&self.values))
    }

    /// The row keys of a page, newest first. `total` is the number of all matches.
    pub fn page(&self, read: &ReadTx<'_>, total: i64, limit: u32, offset: u64) -> Result<Vec<i64>> {
        let offset = i64::try_from(offset).unwrap_or(i64::MAX).min(total);
        let limit = i64::from(limit).min(total - offset);
        if limit <= 0 {
            return Ok(Vec::new());
        }
        let after = total - offset - limit;
        let (order, skipped) = if offset <= after { ("DESC", offset) } else { ("ASC", after) };
        let mut keys = self.keys(read, order, limit, skipped)?;
        if order == "ASC" {
            keys.reverse();
        }
        Ok(keys)
    }

    /// The row keys of `limit` matches after the first `skipped` in `order`, `ASC` or `DESC`.
    pub fn keys(&self, read: &ReadTx<'_>, order: &str, limit: i64, skipped: i64) -> Result<Vec<i64>> {
        let sql = format!("{} ORDER BY e.key {order} LIMIT ? + 0 OFFSET ?", self.sql("e.key"));
        let bounds = [Value::from(limit), Value::from(skipped)];
        read.all(&sql, params_from_iter(self.values.iter().chain(&bounds)))
    }
}

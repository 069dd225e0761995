//! Parts of a write that fail alone.

use crate::error::Result;
use crate::store::db::readers::execute;
use crate::store::db::writer::WriteTx;

impl WriteTx<'_> {
    /// Runs a part of this write that fails alone: an error of `part` rolls back what it has changed, and the write goes
    /// on. Its counters are stored at its end, so the next part reads them.
    pub fn part<T>(&self, part: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        let inner = self.begin_part();
        execute(self, "SAVEPOINT part")?;
        let done = part(&inner).and_then(|done| inner.counters().flush(self).map(|()| done));
        if done.is_err() {
            // After some errors, such as a full disk, SQLite has rolled the whole transaction back: no savepoint is left.
            if !self.is_autocommit() {
                execute(self, "ROLLBACK TO part")?;
                execute(self, "RELEASE part")?;
            }
            return done;
        }
        execute(self, "RELEASE part")?;
        self.end_part(inner);
        done
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use crate::error::Error;
    use crate::store::db::counters::QueueName;
    use crate::store::db::writer::commit_single;
    use crate::store::test_support::memory_database;

    #[test]
    fn a_part_that_fails_changes_nothing_and_the_others_stay() {
        let (database, hooks) = (memory_database(), Arc::new(AtomicUsize::new(0)));
        commit_single(&database, |tx| {
            for (name, is_refused) in [("a", false), ("b", true), ("c", false)] {
                let done = tx.part(|tx| {
                    tx.execute("INSERT INTO meta (name, value) VALUES (?1, 1)", [name])?;
                    tx.counters().add_queued(QueueName::Send, 1);
                    let hooks = Arc::clone(&hooks);
                    tx.on_commit(move || {
                        hooks.fetch_add(1, Ordering::Relaxed);
                    });
                    if is_refused { Err(Error::fault("no")) } else { Ok(()) }
                });
                assert_eq!(done.is_err(), is_refused);
            }
            Ok(())
        })
        .unwrap();
        let count = |sql: &str| database.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(count("SELECT count(*) FROM meta WHERE name IN ('a', 'b', 'c')"), 2);
        assert_eq!(count("SELECT count(*) FROM meta WHERE name = 'b'"), 0);
        assert_eq!(count("SELECT count FROM backlog WHERE name = 'send'"), 2);
        assert_eq!(hooks.load(Ordering::Relaxed), 2);
    }
}

//! A table of plans whose limits are small enough to reach.

use crate::support::*;

/// A file with the table.
pub struct Plans(TempDir);

impl Plans {
    pub fn new(table: &Value) -> Self {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("plans.json"), table.to_string()).unwrap();
        Self(folder)
    }

    /// A table with one plan.
    pub fn free(limits: &Value) -> Self {
        Self::new(&json!({"free": limits}))
    }

    pub fn path(&self) -> String {
        self.0.path().join("plans.json").to_str().unwrap().to_owned()
    }

    /// A server with these plans.
    pub fn server(&self, flags: &[&str]) -> Server {
        Server::start(&[flags, &["--plans", &self.path()]].concat())
    }

    /// As [`Plans::server`], and the client of a new account.
    pub fn with_user(&self, flags: &[&str]) -> (Server, Client) {
        let server = self.server(flags);
        let user = server.user();
        (server, user)
    }

    /// Gives the user another plan of the table.
    #[track_caller]
    pub fn set(&self, server: &Server, email: &str, plan: &str) {
        server.administer(&["set-plan", email, plan, "--plans", &self.path()]);
    }
}

//! A key that is not stored yet.

pub struct NewKey {
    pub api_key: String,
    /// The account, if the server has just handed out the key.
    pub email: Option<String>,
}

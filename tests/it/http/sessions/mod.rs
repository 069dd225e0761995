//! Sessions of browsers: sign-in, the cookie, requests of other sites, and the ends of a session.

mod cross_site;
mod ends;
mod sign_in;
mod ways;

use serde_json::{Value, json};

use crate::support::client::{Client, Response};

/// A request without a key, with these headers.
pub fn send(client: &Client, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
    client.call(method, path, headers, body.as_bytes()).unwrap()
}

/// A sign-in of a program: without the headers of a browser.
pub fn sign_in(client: &Client, credential: &Value) -> Response {
    let json = ("Content-Type", "application/json");
    send(client, "POST", "/v1/auth/session", &[json], &credential.to_string())
}

/// The credential in the address of a one-time link.
pub fn token_of(url: &str) -> Value {
    let (_, token) = url.trim().split_once("/#/enter/").expect(url);
    json!({ "link_token": token })
}

/// Name and value of the cookie that a response sets.
pub fn cookie_of(response: &Response) -> String {
    let header = response.header("set-cookie").expect("a cookie");
    header.split(';').next().unwrap().to_owned()
}

/// A browser that has a cookie. `anonymous` has no key.
pub struct Browser {
    anonymous: Client,
    pub cookie: String,
}

impl Browser {
    pub fn new(anonymous: &Client, signed_in: &Response) -> Self {
        assert_eq!(signed_in.status, 201, "{}", signed_in.text());
        Self { anonymous: anonymous.clone(), cookie: cookie_of(signed_in) }
    }

    /// A request of a page of this server.
    pub fn call(&self, method: &str, path: &str, body: &str) -> Response {
        self.call_with(method, path, &[("Sec-Fetch-Site", "same-origin")], body)
    }

    pub fn call_with(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
        let headers = [&[("Cookie", self.cookie.as_str())], headers].concat();
        send(&self.anonymous, method, path, &headers, body)
    }

    pub fn get(&self, path: &str) -> Response {
        self.call("GET", path, "")
    }

    pub fn is_signed_in(&self) -> bool {
        match self.get("/v1/auth/me").status {
            200 => true,
            401 => false,
            other => panic!("{other}"),
        }
    }
}

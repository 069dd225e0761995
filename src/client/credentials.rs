//! The credentials file, with a key per profile; the address of a server; which server and key a command uses.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error as ThisError;
use url::{Host, Url};

use crate::domain::account::credentials::may_contain_secret;
use crate::domain::secret::{Secret, exposed};
use crate::domain::webhook::callback::is_local;

/// The server of a command that names none: `cued serve` with its default address.
pub const DEFAULT_URL: &str = "http://127.0.0.1:8000";

/// The profile that `cued login` writes if none is named.
pub const DEFAULT_PROFILE: &str = "default";

/// Variables of the environment that may have the key; the first one counts.
pub const KEY_VARIABLES: [&str; 2] = ["CUED_API_KEY", "CUEAPI_API_KEY"];

/// Bits of the file's mode that let others read or write it.
const OTHERS: u32 = 0o077;

#[derive(Debug, ThisError)]
pub enum CredentialsError {
    #[error("cannot read {path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {path}: {source}")]
    Write { path: PathBuf, source: io::Error },
    #[error(
        "{0} can be read by others: it contains keys. Run `chmod 600 {0}`, and replace the keys if anyone has read it"
    )]
    OpenToOthers(PathBuf),
    #[error("{path} is damaged: {source}; repair it, or remove it and run `cued login`")]
    Damaged { path: PathBuf, source: serde_json::Error },
    #[error("there is no profile {name:?} in {path}{known}; run `cued login --profile {name}`")]
    NoProfile { name: String, path: PathBuf, known: String },
    #[error("there is no place for a credentials file: set HOME, XDG_CONFIG_HOME or CUED_CONFIG")]
    NoPlace,
    /// The message repeats nothing that may be a key.
    #[error("{0}")]
    BadUrl(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    pub url: String,
    #[serde(serialize_with = "exposed")]
    pub api_key: Secret,
    #[serde(default)]
    pub email: String,
    #[serde(default)]
    pub key_id: Option<String>,
    /// The file of `--ca`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    /// The profile of a command that names none.
    #[serde(default)]
    pub current: Option<String>,
    #[serde(default)]
    pub profiles: BTreeMap<String, Profile>,
}

#[derive(Debug, Clone, Default)]
pub struct ConnectionChoice {
    pub url: Option<String>,
    pub profile: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Target {
    pub url: String,
    pub key: Option<Secret>,
    pub profile: Option<String>,
    /// The variable of the environment that the key comes from, if it is not that of the profile.
    pub key_variable: Option<&'static str>,
    /// The file of authorities of `CUED_CA` or the profile.
    pub ca: Option<PathBuf>,
}

impl Credentials {
    /// The place of the file, by the environment.
    pub fn path(env: &dyn Fn(&str) -> Option<String>) -> Result<PathBuf, CredentialsError> {
        if let Some(path) = env("CUED_CONFIG") {
            return Ok(path.into());
        }
        let config = env("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let config = config.or_else(|| Some(Path::new(&env("HOME")?).join(".config")));
        Ok(config.ok_or(CredentialsError::NoPlace)?.join("cued").join("credentials.json"))
    }

    /// Reads the file; empty if there is none.
    pub fn read(path: &Path) -> Result<Self, CredentialsError> {
        let failed = |source| CredentialsError::Read { path: path.to_owned(), source };
        let text = match std::fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            text => text.map_err(failed)?,
        };
        if path.metadata().map_err(failed)?.permissions().mode() & OTHERS != 0 {
            return Err(CredentialsError::OpenToOthers(path.to_owned()));
        }
        serde_json::from_slice(&text)
            .map_err(|source| CredentialsError::Damaged { path: path.to_owned(), source })
    }

    /// Changes the file. Of commands that change it at the same time, one waits for the other.
    /// Errors: if it cannot be read or written; it is then as before.
    pub fn update<T>(
        path: &Path,
        change: impl FnOnce(&mut Self) -> T,
    ) -> Result<T, CredentialsError> {
        let failed = |source| CredentialsError::Write { path: path.to_owned(), source };
        // The file itself is replaced, so that its lock would be that of a removed file.
        let folder = File::open(folder_of(path).map_err(failed)?).map_err(failed)?;
        // Some network file systems have no lock for a folder.
        drop(folder.lock());
        let mut credentials = Self::read(path)?;
        let result = change(&mut credentials);
        credentials.write(path).map_err(failed)?;
        Ok(result)
    }

    /// Proves that the file can be written, before what must be stored exists.
    pub fn check_writable(path: &Path) -> Result<(), CredentialsError> {
        let file = folder_of(path).and_then(tempfile::NamedTempFile::new_in);
        file.map(drop).map_err(|source| CredentialsError::Write { path: path.to_owned(), source })
    }

    /// Replaces the file. Only its owner can read it.
    fn write(&self, path: &Path) -> io::Result<()> {
        // Through a symbolic link, the target is replaced.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        // Its mode is 0600 from the beginning.
        let mut file = tempfile::NamedTempFile::new_in(folder_of(&path)?)?;
        file.write_all(serde_json::to_string_pretty(self)?.as_bytes())?;
        file.write_all(b"\n")?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    }
}

/// The folder of the file, which is made if it is missing.
fn folder_of(path: &Path) -> io::Result<&Path> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    Ok(folder)
}

impl Target {
    /// The target of a command: flags before the environment, before the profile, before the default. The key of a
    /// profile goes to the server of that profile and to no other.
    pub fn resolve(
        chosen: &ConnectionChoice,
        env: &dyn Fn(&str) -> Option<String>,
        credentials: &Credentials,
        path: &Path,
    ) -> Result<Self, CredentialsError> {
        let named = chosen.profile.clone().or_else(|| env("CUED_PROFILE"));
        let profile = match (&named, &credentials.current) {
            (Some(name), _) => {
                let no_profile = || {
                    let names: Vec<&str> =
                        credentials.profiles.keys().map(String::as_str).collect();
                    let known = if names.is_empty() {
                        String::new()
                    } else {
                        format!(", only {}", names.join(", "))
                    };
                    CredentialsError::NoProfile { name: name.clone(), path: path.to_owned(), known }
                };
                Some((name, credentials.profiles.get(name).ok_or_else(no_profile)?))
            }
            (None, Some(name)) => credentials.profiles.get(name).map(|profile| (name, profile)),
            (None, None) => None,
        };
        // A profile that is named by a flag counts before the environment.
        let env_url = || env("CUED_URL").or_else(|| env("CUEAPI_API_BASE"));
        let env_key = || KEY_VARIABLES.iter().find_map(|name| Some((*name, env(name)?)));
        let (env_url, env_key) =
            if chosen.profile.is_some() { (None, None) } else { (env_url(), env_key()) };
        let url = chosen.url.clone().or(env_url);
        let url = url.map(|url| server_url(&url)).transpose().map_err(CredentialsError::BadUrl)?;
        // Another server than that of the profile: one that has a profile of its own, or none.
        let profile = match &url {
            Some(url) if named.is_none() => {
                let of_url = |(_, profile): &(&String, &Profile)| normal_url(&profile.url) == *url;
                profile.filter(of_url).or_else(|| credentials.profiles.iter().find(of_url))
            }
            _ => profile,
        };
        let profile_url = profile.map(|(_, profile)| normal_url(&profile.url));
        let url = url.or_else(|| profile_url.clone()).unwrap_or_else(|| DEFAULT_URL.to_owned());
        let of_profile = profile.filter(|_| profile_url.as_ref() == Some(&url));
        let (key_variable, env_key) = env_key.unzip();
        let key = env_key
            .map(Secret::new)
            .or_else(|| of_profile.map(|(_, profile)| profile.api_key.clone()));
        let profile_ca = of_profile.and_then(|(_, profile)| profile.ca.clone());
        let env_ca = env("CUED_CA").map(PathBuf::from);
        let ca =
            if chosen.profile.is_some() { profile_ca.or(env_ca) } else { env_ca.or(profile_ca) };
        Ok(Self { url, key, profile: of_profile.map(|(name, _)| name.clone()), key_variable, ca })
    }
}

/// The base URL for requests. Without a scheme it is `http` for a local name or address, else `https`.
/// Errors: a message that repeats nothing that may be a key.
pub fn server_url(text: &str) -> Result<String, String> {
    let text = text.trim();
    if may_contain_secret(text) {
        return Err("this address contains a key. Revoke the key: arguments can be read by every user of this machine"
            .to_owned());
    }
    let invalid = || {
        format!(
            "{text:?} is no address of a server; examples are https://cue.example.com and 127.0.0.1:8000"
        )
    };
    let parse = |url: &str| Url::parse(url).map_err(|_| invalid());
    let url = if text.contains("://") {
        parse(text)?
    } else {
        let url = parse(&format!("http://{text}"))?;
        if url.host_str().is_some_and(|host| is_local(host.trim_matches(['[', ']']))) {
            url
        } else {
            parse(&format!("https://{text}"))?
        }
    };
    if !matches!(url.scheme(), "http" | "https") {
        let scheme = url.scheme();
        return Err(format!(
            "the address of a server begins with http:// or https://, not with {scheme}://"
        ));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("the address of a server has no user name and no password in it".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(format!("the address of a server has no `?` and no `#`: {text:?} is a page"));
    }
    Ok(normal_url(url.as_str()))
}

/// A base URL without slashes at its end and without `/v1`, which clients of the published API have in it.
pub fn normal_url(url: &str) -> String {
    let url = url.trim().trim_end_matches('/');
    url.strip_suffix("/v1").unwrap_or(url).trim_end_matches('/').to_owned()
}

/// The host of a base URL, with its port if it is not the usual one.
pub fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest)
}

/// Returns `true` if the host of a base URL is this machine by its name or address.
pub fn is_loopback(url: &str) -> bool {
    match Url::parse(url).ok().as_ref().and_then(Url::host) {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(
        chosen: [Option<&str>; 2],
        env: &[(&str, &str)],
    ) -> Result<Target, CredentialsError> {
        let [url, profile] = chosen.map(|text| text.map(str::to_owned));
        let stored = |(name, url, key): (&str, &str, &str)| {
            let (url, api_key, email) = (url.to_owned(), key.to_owned().into(), String::new());
            (name.to_owned(), Profile { url, api_key, email, key_id: None, ca: None })
        };
        let profiles =
            [("home", "http://pi:8000/", "k-home"), ("work", "https://cue.example.com", "k-work")]
                .map(stored);
        let credentials =
            Credentials { current: Some("home".to_owned()), profiles: profiles.into() };
        let env = |name: &str| {
            env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        Target::resolve(&ConnectionChoice { url, profile }, &env, &credentials, Path::new("f"))
    }

    #[test]
    fn flags_count_before_the_environment_before_the_profile_whose_key_goes_to_no_other_server() {
        let home = ("http://pi:8000", Some("k-home"), Some("home"), None);
        let work = ("https://cue.example.com", Some("k-work"), Some("work"), None);
        let elsewhere = ("http://elsewhere", None, None, None);
        for (chosen, env, expected) in [
            ([None, None], &[][..], home),
            ([None, None], &[("CUED_PROFILE", "work")], work),
            ([None, Some("work")], &[("CUED_API_KEY", "k-env")], work),
            ([Some("https://cue.example.com/"), None], &[], work),
            ([Some("http://elsewhere"), None], &[], elsewhere),
            ([Some("http://elsewhere"), Some("home")], &[], elsewhere),
            (
                [None, None],
                &[("CUED_API_KEY", "k-env"), ("CUED_URL", "http://x/v1")],
                ("http://x", Some("k-env"), None, Some("CUED_API_KEY")),
            ),
            (
                [None, None],
                &[("CUEAPI_API_KEY", "k-env"), ("CUEAPI_API_BASE", "http://x/v1/")],
                ("http://x", Some("k-env"), None, Some("CUEAPI_API_KEY")),
            ),
        ] {
            let Target { url, key, profile, key_variable, .. } = resolve(chosen, env).unwrap();
            let key = key.as_ref().map(|key| key.expose().as_str());
            let resolved = (url.as_str(), key, profile.as_deref(), key_variable);
            assert_eq!(resolved, expected, "{chosen:?} {env:?}");
        }
        let missing = resolve([None, Some("nowhere")], &[]).unwrap_err();
        assert!(missing.to_string().contains("no profile \"nowhere\""), "{missing}");
    }

    #[test]
    fn local_names_and_addresses_have_http_and_others_https() {
        for (text, expected) in [
            ("127.0.0.1:8000", "http://127.0.0.1:8000"),
            ("localhost:8000", "http://localhost:8000"),
            ("[::1]:8000/", "http://[::1]:8000"),
            ("192.168.1.20", "http://192.168.1.20"),
            ("pi", "http://pi"),
            ("NAS.lan:80", "http://nas.lan"),
            ("pi.local", "http://pi.local"),
            ("cue.example.com", "https://cue.example.com"),
            ("cue.example.com:8443/cued/", "https://cue.example.com:8443/cued"),
            ("8.8.8.8", "https://8.8.8.8"),
            (" http://cue.example.com/v1/ ", "http://cue.example.com"),
        ] {
            assert_eq!(server_url(text), Ok(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_and_a_key_is_not_repeated() {
        for (text, part) in [
            ("", "is no address"),
            ("a b", "is no address"),
            ("http://", "is no address"),
            ("localhost:port", "is no address"),
            ("ftp://pi", "not with ftp://"),
            ("http://me:word@pi", "no password"),
            ("http://pi/auth/device?code=AB", "is a page"),
        ] {
            let error = server_url(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        let key = format!("cue_sk_{}", "0".repeat(32));
        let error = server_url(&key).unwrap_err();
        assert!(!error.contains("cue_sk_"), "{error}");
    }

    #[test]
    fn loopback_is_known_by_name_and_address_and_a_host_keeps_an_unusual_port() {
        let is_near = |url: &&str| is_loopback(url);
        let near = [
            "http://localhost:8000",
            "http://127.0.0.1",
            "https://[::1]:1/x",
            "http://cued.localhost",
        ];
        let far =
            ["http://pi.lan", "http://10.0.0.1:8000", "https://localhost.example.com", "localhost"];
        assert!(near.iter().all(is_near) && !far.iter().any(is_near));
        assert_eq!(host_of("http://pi.lan:8000/cued"), "pi.lan:8000");
    }
}
